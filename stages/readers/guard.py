"""Code that reads one record may fail in ways that nobody foresaw: then that record fails, and no other.

Only pure code runs under this guard, on bytes that are already in memory. So an ``OSError`` of the store never meets
it, and whatever a decoder or parser raises is a property of the record: want of memory too, and the panics of Rust
libraries, which derive from ``BaseException``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar, TypeVarTuple

from stages.readers.base import Row, utf8

T = TypeVar("T")
Args = TypeVarTuple("Args")

PASSING: Final = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Never a property of a record: someone wants the process, or the generator, to end."""
MAX_DETAIL_CHARS: Final = 200


@dataclass(frozen=True)
class Failed:
    """What came of a call that raised."""

    error: BaseException


def attempt(work: Callable[[*Args], T], *args: *Args) -> T | Failed:
    """Return ``work(*args)``, or what it raised."""
    try:
        return work(*args)
    except PASSING:
        raise
    except BaseException as error:
        return Failed(error)


def guarded(work: Callable[[Row, *Args], Row], row: Row, *args: *Args) -> Row:
    """Return ``work(row, *args)``, or ``row`` failed as ``crashed`` if that raises."""
    try:
        return work(row, *args)
    except PASSING:
        raise
    except BaseException as error:
        return row.fail("crashed", explain(error))


def explain(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = str(error).strip().splitlines()
    return utf8(": ".join([type(error).__name__, *lines[:1]]))[:MAX_DETAIL_CHARS]
