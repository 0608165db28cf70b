"""The base of headrace's own DoFns: an error that a person can mend reaches the driver as it was raised.

A runner turns what a DoFn raises into text, and the type, the place and the remedy are lost. In a local process the
error is therefore noted before it is handed to Beam, and ``run_in_memory`` raises the noted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam

from shards.errors import UserError

_noted: list[Exception] = []


class Step(beam.DoFn):
    """A DoFn that does ``work`` on each element."""

    def work(self, element: Any) -> Iterator[Any]:
        """Return what an element becomes."""
        raise NotImplementedError("a step says what its work is")

    def process(self, element: Any) -> Iterator[Any]:
        """Do the work, and note what goes wrong."""
        try:
            yield from self.work(element)
        except (UserError, OSError) as error:
            _noted.append(error)
            raise


def take_noted() -> Exception | None:
    """Return the first error noted in this process since the last call, None if there was none."""
    found = _noted[0] if _noted else None
    _noted.clear()
    return found
