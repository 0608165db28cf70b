from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shards.small_shards import flip
from trainer.kept_states import KEEP_EVERY_STEPS, KeptStates

IDENTITY = {"seed": 3, "shards": "s"}


def state(step: int, **changes: Any) -> dict[str, Any]:
    return {**IDENTITY, "step": step, "domains": {"web": [step, 0, 0, 0, []]}} | changes


@given(steps=st.lists(st.integers(0, 30), max_size=20), asked=st.integers(0, 40))
def test_the_last_state_before_a_step_is_found(steps: list[int], asked: int) -> None:
    kept = KeptStates(IDENTITY)
    for step in steps:
        kept.offer(step, state(step))
    before = [step for step in steps if step <= asked]
    assert kept.before(asked) == (state(max(before)) if before else None)


def test_a_later_process_finds_what_an_earlier_one_kept(tmp_path: Path) -> None:
    path = tmp_path / "states"
    first = KeptStates(IDENTITY, path)
    for step in (200, 0, 100, 100):
        first.offer(step, state(step))
    assert len(path.read_text().splitlines()) == 3
    again = KeptStates(IDENTITY, path)
    assert [again.before(step) for step in (0, 150, 999)] == [state(0), state(100), state(200)]
    again.offer(300, state(300))
    again.offer(200, state(200))
    assert len(path.read_text().splitlines()) == 4
    assert KeptStates(IDENTITY, path).before(999) == state(300)


def test_one_process_alone_writes(tmp_path: Path) -> None:
    path = tmp_path / "states"
    KeptStates(IDENTITY, path).offer(0, state(0))
    written = path.read_bytes()
    reader = KeptStates(IDENTITY, path, writes=False)
    reader.offer(100, state(100))
    assert reader.before(100) == state(100)
    assert path.read_bytes() == written


@pytest.mark.parametrize("damage", ["cut", "flipped", "foreign", "noise"])
def test_what_is_not_a_state_of_this_stream_counts_for_nothing(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "states"
    kept = KeptStates(IDENTITY, path)
    kept.offer(0, state(0))
    good = path.read_bytes()
    kept.offer(100, state(100))
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-9])
    elif damage == "flipped":
        flip(path, 0.75)
    elif damage == "foreign":
        path.write_bytes(good)
        KeptStates({**IDENTITY, "seed": 4}, path, writes=False)
        with path.open("a") as file:
            other = KeptStates({**IDENTITY, "seed": 4}, tmp_path / "other")
            other.offer(100, state(100, seed=4))
            file.write((tmp_path / "other").read_text())
    else:
        path.write_bytes(good + b"\xff\xfe[]\n[]\n7\nnull\n")
    again = KeptStates(IDENTITY, path)
    assert again.before(100) == state(0)
    assert path.read_bytes() == good
    again.offer(100, state(100))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 100]


def test_states_are_due_at_regular_steps() -> None:
    kept = KeptStates(IDENTITY)
    assert [step for step in range(2 * KEEP_EVERY_STEPS + 1) if kept.is_due(step)] == [0, 100, 200]
    assert [step for step in range(9) if KeptStates(IDENTITY, every=4).is_due(step)] == [0, 4, 8]
