"""Calls in a process of their own: results, errors, and the limits of time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from stages.html.isolated import Isolated, IsolatedError


def act(text: str) -> str:
    """What the child runs: it does as it is told."""
    if text == "pid":
        return str(os.getpid())
    if text == "print":
        print("noise" * 1000, flush=True)
    elif text == "raise":
        raise ValueError("no such page")
    elif text == "sleep":
        time.sleep(600)
    elif text == "grow":
        return "x" * (8 << 30)
    elif text == "end":
        os._exit(3)
    return text.upper()


@pytest.fixture
def call() -> Iterator[Isolated]:
    made = Isolated(f"{__name__}:act", seconds=60, memory_bytes=2 << 30)
    yield made
    made.close()


def test_texts_of_any_size_and_script_come_back(call: Isolated) -> None:
    for text in ("", "é漢", "print", "a" * 3_000_000):
        assert call(text) == text.upper()
    assert call("pid") == call("pid") != str(os.getpid())


@pytest.mark.parametrize(("text", "said"), [("raise", "ValueError: no such page"), ("grow", "MemoryError")])
def test_an_error_is_told_and_the_child_stays(call: Isolated, text: str, said: str) -> None:
    before = call("pid")
    with pytest.raises(IsolatedError, match=said):
        call(text)
    assert call("pid") == before


def test_a_child_that_ends_is_replaced(call: Isolated) -> None:
    before = call("pid")
    with pytest.raises(IsolatedError, match="the process ended"):
        call("end")
    assert call("pid") != before


def test_a_call_that_takes_too_long_is_ended(call: Isolated) -> None:
    call("x")
    call.seconds = 0.2
    with pytest.raises(IsolatedError, match=r"took longer than 0\.2 s"):
        call("sleep")
    call.seconds = 60
    assert call("x") == "X"


def test_a_function_that_cannot_be_loaded() -> None:
    with pytest.raises(IsolatedError, match="no_such_module"):
        Isolated("no_such_module:act", 60, 2 << 30)("x")
