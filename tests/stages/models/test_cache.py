from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from stages.models.cache import load_once


def test_loads_once_however_many_ask_at_a_time() -> None:
    loads: Counter[str] = Counter()

    def slow(path: str) -> object:
        loads[path] += 1
        time.sleep(0.02)
        return object()

    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(load_once(slow, "once"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == {"once": 1}
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_paths_and_loaders_are_told_apart() -> None:
    def one(path: str) -> str:
        return f"one {path}"

    def other(path: str) -> str:
        return f"other {path}"

    assert [load_once(one, "a"), load_once(one, "b"), load_once(other, "a")] == ["one a", "one b", "other a"]


def test_a_failed_load_is_tried_again() -> None:
    tries: list[str] = []

    def flaky(path: str) -> str:
        tries.append(path)
        if len(tries) == 1:
            raise OSError("not yet")
        return path

    with pytest.raises(OSError, match="not yet"):
        load_once(flaky, "x")
    assert load_once(flaky, "x") == "x"


def test_a_loader_may_load_another_model() -> None:
    def inner(path: str) -> str:
        return path

    def outer(path: str) -> str:
        return load_once(inner, path) + "!"

    assert load_once(outer, "nested") == "nested!"
