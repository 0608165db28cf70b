"""Which units ended their process when they were tried, and how a pass continues from there.

A process that is killed can say nothing. So a unit leaves a file when it begins; one that finds the file of an earlier
attempt is tried in isolation (``pipelines.beam.isolation``), slower and with the same bytes. A unit that ends by an
error takes its file away. One that commits leaves it, because it is not begun again, and the whole folder goes when the
pass is finished: on an object store, a deletion costs three requests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from pipelines.beam import isolation
from shards.errors import IncompleteError
from shards.store import UNFINISHED, Store

DEATHS_IN_VAIN = 3


class Attempts:
    """The units of a pass that were begun and have not ended by an error: each has a file in ``unfinished/{pass}``."""

    def __init__(self, store: Store, name: str) -> None:
        self._store, self._name = store, name

    def begin(self, unit: str) -> bool:
        """Note that a unit begins, and return whether it is to be isolated: an earlier attempt never ended.

        Makes two store calls at most.
        """
        path = self._path(unit)
        try:
            self._store.open(path).close()
        except IncompleteError:
            self._store.write_bytes(path, b"begun")
            return False
        return True

    def end(self, unit: str) -> None:
        """Note that a unit ended by an error, with one store call."""
        # Another attempt may have taken it away; and a file that stays costs time alone, where an error costs the unit.
        with contextlib.suppress(OSError):
            self._store.delete(self._path(unit))

    @contextlib.contextmanager
    def during(self, unit: str) -> Iterator[bool]:
        """Begin a unit, yield whether it is isolated, and end it and its child process.

        Around what a reading DoFn yields, the body also waits for all that is fused behind it, the commit included.
        """
        isolated = self.begin(unit)
        try:
            yield isolated
        except BaseException:
            self.end(unit)
            raise
        finally:
            isolation.close()

    def forget(self) -> None:
        """Forget every unit: those that were begun were stopped, and did not end their process."""
        self._store.delete_folder(f"{UNFINISHED}/{self._name}/attempts")

    def _path(self, unit: str) -> str:
        return f"{UNFINISHED}/{self._name}/attempts/{unit}"


def run_until_done(
    run: Callable[[Sequence[str]], None],
    units: Sequence[str],
    pending: Callable[[Sequence[str]], list[str]],
    died: type[Exception],
    deaths_in_vain: int = DEATHS_IN_VAIN,
) -> None:
    """Run units, and again those that are left when a worker process has died.

    Args:
        run: runs units, and raises ``died`` when a worker process has died.
        units: what to run.
        pending: returns those of some units that are not committed.
        died: the error of a dead worker.
        deaths_in_vain: how many deaths in a row, with no unit committed in between, are too many.

    Raises:
        Exception: the ``died`` that was one too many.
    """
    left, in_vain = list(units), 0
    while left:
        try:
            run(left)
        except died:
            still = pending(left)
            in_vain = in_vain + 1 if len(still) == len(left) else 0
            if in_vain >= deaths_in_vain:
                raise
            left = still
        else:
            return
