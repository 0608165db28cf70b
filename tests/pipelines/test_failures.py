from __future__ import annotations

import errno
import os
import signal

import pyarrow as pa
import pytest

from pipelines.failures import (
    DEBUG,
    Explanation,
    TerminatedError,
    ending_on_sigterm,
    explained,
    is_debugging,
    is_of_memory,
)


def noted(error: Exception, note: str = "in pass judge") -> Exception:
    error.add_note(note)
    return error


def raised_from(cause: BaseException) -> RuntimeError:
    error = RuntimeError("Unable to translate parts")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "what", "place", "remedy", "code"),
    [
        (OSError(errno.ENOSPC, "full", "/a/b"), "full", "/a/b (in pass judge)", "once there is room", 1),
        (OSError(errno.EROFS, "closed", "/a/b"), "closed", "/a/b (in pass judge)", "name another folder", 2),
        (OSError(errno.ENOENT, "gone", "/a/b"), "gone", "/a/b (in pass judge)", "once it is back", 1),
        (OSError("AWS Error 500"), "AWS Error 500", "in pass judge", "once it can be reached", 1),
        (OSError(errno.EIO, "x", "/a", None, "/b"), "x", "/a to /b (in pass judge)", "can be reached", 1),
        (OSError(errno.ENOMEM, "short", "lm.arpa"), "memory ran out", "lm.arpa; in pass judge", "--workers", 1),
        (MemoryError(), "memory ran out", "in pass judge", "ulimit -v", 1),
        (pa.ArrowMemoryError("malloc failed"), "memory ran out", "in pass judge", "--workers", 1),
        (RuntimeError("can't start new thread"), "memory ran out", "in pass judge", "--workers", 1),
    ],
)
def test_a_failure_is_told_with_place_and_remedy(
    error: Exception, what: str, place: str, remedy: str, code: int
) -> None:
    for given in (noted(error), raised_from(error)):
        found = explained(given)
        assert isinstance(found, Explanation)
        assert (found.what, found.place, found.code) == (what, place, code)
        assert remedy in found.remedy
        assert "Finished work is kept: run the same command again" in found.remedy


@pytest.mark.parametrize("error", [RuntimeError("a defect"), ValueError("x"), OSError(errno.EBADF, "x")])
def test_a_defect_has_no_such_words(error: Exception) -> None:
    assert explained(error) is None


def test_what_was_dealt_with_before_is_not_the_cause() -> None:
    def fail() -> None:
        try:
            raise MemoryError
        except MemoryError:
            raise AssertionError("a defect") from None

    with pytest.raises(AssertionError) as caught:
        fail()
    assert explained(caught.value) is None


def test_memory_is_found_behind_what_it_was_raised_as() -> None:
    assert is_of_memory(raised_from(MemoryError()))
    assert not is_of_memory(raised_from(OSError(errno.EIO, os.strerror(errno.EIO))))


@pytest.mark.parametrize(("value", "shown"), [(None, False), ("", False), ("0", False), ("1", True), ("yes", True)])
def test_tracebacks_are_asked_for_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, value: str | None, shown: bool
) -> None:
    monkeypatch.delenv(DEBUG, raising=False)
    if value is not None:
        monkeypatch.setenv(DEBUG, value)
    assert is_debugging() is shown


def test_sigterm_stops_the_body_once_and_means_what_it_meant_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            # While it clears away, a second one does nothing.
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(TerminatedError), ending_on_sigterm():
        work()
    assert signal.getsignal(signal.SIGTERM) == before
