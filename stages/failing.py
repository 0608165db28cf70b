"""Documents on which a call fails: each one found among the others, which keep their result, and counted with a reason.

A stage or a tokeniser is called with many documents at once. Where such a call fails, ``settle`` repeats it on ever
smaller pieces, so the result of a document never depends on what it was batched with.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import pyarrow as pa

from shards.errors import UserError
from shards.schema import UNKNOWN_LANGUAGE

A = TypeVar("A")
T = TypeVar("T")

STAGE_ERROR: Final = "stage_error"
"""Reason of a document on which a call raised an error, or panicked in native code."""
KILLED_PROCESS: Final = "killed_process"
"""Reason of a document on which a call ended its process: only found out by ``pipelines.beam.isolation``."""
FAILURES: Final = (STAGE_ERROR, KILLED_PROCESS)
"""How a document may fail in any stage, beside what the stage itself declares."""

NOT_OF_A_DOCUMENT: Final = (KeyboardInterrupt, SystemExit, GeneratorExit, UserError, OSError)
"""Errors that say something of the person, the process or the machine, and therefore always reach the driver."""

PIECES: Final = 16
"""Rows that fail together are cut into so many pieces: in 2,000 rows, a document is found by 4 failed calls and not 12,
and each of them may take seconds, or a process."""

DETAIL_CHARS: Final = 200
_HELD_BYTES: Final = 1 << 16
# Where an object lies differs from run to run.
_ADDRESS: Final = re.compile(r"\b0x[0-9a-fA-F]{5,}")


@dataclass(frozen=True)
class Failure:
    """Why a document failed: one of ``FAILURES``, and what is known of it."""

    reason: str
    detail: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the failure that an error is: its type, and the first line of its message."""
        try:
            message = str(error).strip()[: 10 * DETAIL_CHARS]
        except Exception:
            message = ""
        line = _ADDRESS.sub("0x…", message.splitlines()[0]) if message else ""
        said = f"{type(error).__name__}: {line}" if line else type(error).__name__
        return cls(STAGE_ERROR, said.encode("utf-8", "replace").decode()[:DETAIL_CHARS])


def settle(
    rows: range, call: Callable[[range], T], failure_of: Callable[[BaseException], Failure | None]
) -> list[tuple[range, T | Failure]]:
    """Call on all ``rows`` at once; where that fails, on pieces of them, down to single rows.

    Args:
        rows: consecutive rows, at least one.
        call: returns the result of a range of rows, and the same result for a row in any range.
        failure_of: what an error means for the only row that was called on; None to raise it.

    Returns:
        Consecutive ranges, in order, each with its result. A ``Failure`` is always of a single row.
    """
    try:
        return [(rows, call(rows))]
    except BaseException as error:
        return settle_failed(rows, error, call, failure_of)


def settle_failed(
    rows: range, error: BaseException, call: Callable[[range], T], failure_of: Callable[[BaseException], Failure | None]
) -> list[tuple[range, T | Failure]]:
    """Return what ``settle`` does, after the call on all ``rows`` has raised ``error``."""
    global _panicked
    failure = failure_of(error)
    if failure is None:
        raise error
    _panicked = _panicked or not isinstance(error, Exception)
    if len(rows) == 1:
        return [(rows, failure)]
    step = -(-len(rows) // PIECES)
    pieces = (rows[start : start + step] for start in range(0, len(rows), step))
    return [settled for piece in pieces for settled in settle(piece, call, failure_of)]


def error_of(call: Callable[[], object]) -> type[BaseException] | None:
    """Return the type of the error that a call raises, None where it raises none. Its output on stderr is dropped."""
    try:
        with held_stderr():
            call()
    except NOT_OF_A_DOCUMENT:
        raise
    except BaseException as error:
        return type(error)
    return None


def harmless(schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of one plain document. A stage that fails on it too is at fault itself, not the document."""
    values = {
        "doc_id": 0,
        "source_index": 0,
        "offset": 0,
        "failed": False,
        "text": "The old mill stands beside the river, and its wheel still turns in spring.",
        "media_type": "text/plain",
        "url": "http://example.org/",
        "host": "example.org",
        "language": UNKNOWN_LANGUAGE,
        "domain": "web",
    }
    arrays = [pa.array([values.get(f.name)], f.type) for f in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


_panicked = False


def call_first(call: Callable[[A], T], argument: A) -> T:
    """Return ``call(argument)``. Once a call of this process has panicked, its output on stderr is held back.

    A panic in Rust writes to file descriptor 2 before it becomes an exception: 3 lines, or 70 with a backtrace. So of
    all panics in a process the first is printed, and those of repeated calls are not (``call_again``).
    """
    return call_again(call, argument) if _panicked else call(argument)


def call_again(call: Callable[[A], T], argument: A) -> T:
    """Return ``call(argument)``, its output on stderr held back."""
    with held_stderr():
        return call(argument)


_holding = threading.Lock()


@contextlib.contextmanager
def held_stderr() -> Iterator[None]:
    """Hold back what is written to file descriptor 2: printed afterwards, or dropped where the body raises.

    The descriptor is the whole process's, so while one thread holds it, others go on without.
    """
    with contextlib.ExitStack() as stack:
        held = None
        if _holding.acquire(blocking=False):
            stack.callback(_holding.release)
            # Without a descriptor to spare, or with none to hold, the lines are printed, and nothing else changes.
            with contextlib.suppress(OSError):
                held = stack.enter_context(tempfile.TemporaryFile())
                stderr = os.dup(2)
                stack.callback(os.close, stderr)
                os.dup2(held.fileno(), 2)
                stack.callback(os.dup2, stderr, 2)
        yield
        # Reached only if nothing was raised: then it may be another thread's, and is no noise of a failed document.
        if held is not None:
            held.seek(0)
            waiting = held.read(_HELD_BYTES)
            stack.pop_all().close()
            if waiting:
                os.write(2, waiting)
