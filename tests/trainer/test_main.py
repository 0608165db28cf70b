"""``trainer/__main__.py``, in this process: what it does around the worker."""

from __future__ import annotations

import os
import runpy
import signal
from collections.abc import Iterator

import pytest

from trainer import worker


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("code", [0, 130])
def test_a_rank_ends_with_the_code_of_its_worker_and_all_output(
    code: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ended: list[tuple[int, tuple[str, str]]] = []

    def work() -> int:
        # Not Python's own handler, which would print a traceback while torch is imported.
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        print("last words", end="")
        return code

    monkeypatch.setattr(worker, "main", work)
    monkeypatch.setattr(os, "_exit", lambda code: ended.append((code, capfd.readouterr())))
    runpy.run_module("trainer", run_name="__main__")
    assert ended == [(code, ("last words", ""))]


def test_importing_it_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "_exit", lambda code: pytest.fail("ended"))
    before = signal.getsignal(signal.SIGINT)
    runpy.run_module("trainer.__main__", run_name="trainer.__main__")
    assert signal.getsignal(signal.SIGINT) == before
