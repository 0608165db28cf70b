"""What ends a command without anybody's mistake: a disk, a server, the memory. Each is told in one message.

A traceback says where in the code something was noticed, which helps whoever looks for a defect and nobody whose disk
is full. So it is shown on request, by ``--debug`` or ``HEADRACE_DEBUG=1``, and otherwise where there is no message.

Imports nothing heavy: the command line needs it before anything else.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

DEBUG: Final = "HEADRACE_DEBUG"
"""Set in the environment, so that workers have it as well."""

_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_CLOSED: Final = (errno.EACCES, errno.EROFS, errno.EPERM)
_SHORT: Final = (errno.ENOMEM, errno.EAGAIN)
_KEPT: Final = "Finished work is kept: run the same command again"
# What Python and Arrow say where the system gives no thread: with a limit on memory or on processes, it is that.
_NO_THREAD: Final = ("can't start new thread", "Resource temporarily unavailable")
_DEFECTS: Final = (errno.EBADF, errno.EINVAL, errno.EFAULT)


class TerminatedError(KeyboardInterrupt):
    """The process was asked to end by SIGTERM: it stops as by Ctrl-C."""


@contextlib.contextmanager
def ending_on_sigterm() -> Iterator[None]:
    """Raise ``TerminatedError`` in the body on SIGTERM, once: workers and scratch are cleared away, then it ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Explanation:
    """A failure in words: what, where, what to do about it, and the exit code."""

    what: str
    place: str
    remedy: str
    code: int


def is_debugging() -> bool:
    """Return whether tracebacks are asked for."""
    return os.environ.get(DEBUG, "0") not in ("", "0")


def explained(error: BaseException) -> Explanation | None:
    """Return what an error means for whoever started the command, None for a defect."""
    for cause in _causes(error):
        notes = "; ".join(dict.fromkeys(note for one in (error, cause) for note in getattr(one, "__notes__", ())))
        if isinstance(cause, MemoryError) or _is_no_thread(cause):
            return _of_memory(cause, notes)
        if isinstance(cause, OSError) and not (cause.filename is None and cause.errno in _DEFECTS):
            return _of_memory(cause, notes) if cause.errno in _SHORT else _of_system(cause, notes)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised from: not what it was raised during, which may have been dealt with."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def is_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory is short, or what else a process needs to go on."""
    return any(isinstance(cause, MemoryError) or _is_no_thread(cause) for cause in _causes(error))


def _is_no_thread(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and any(said in str(error) for said in _NO_THREAD)


def _of_memory(error: BaseException, notes: str) -> Explanation:
    place = getattr(error, "filename", None)
    return Explanation(
        "memory ran out",
        "; ".join(filter(None, [str(place or ""), notes])),
        f"{_KEPT}, with fewer --workers, or where a process may take more memory ('ulimit -v', a control group)",
        1,
    )


def _of_system(error: OSError, notes: str) -> Explanation:
    what = error.strerror or str(error) or type(error).__name__
    places = [str(one) for one in (error.filename, error.filename2) if one is not None]
    place = " to ".join(places) + (f" ({notes})" if notes and places else notes)
    if error.errno in _FULL:
        return Explanation(what, place, f"{_KEPT} once there is room", 1)
    if error.errno in _CLOSED:
        return Explanation(what, place, f"Change that, or name another folder. {_KEPT}", 2)
    if error.errno == errno.ENOENT:
        return Explanation(what, place, f"{_KEPT} once it is back", 1)
    return Explanation(what, place, f"{_KEPT} once it can be reached", 1)
