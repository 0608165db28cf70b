from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shards.errors import IncompleteError
from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from tests.shards.small_shards import random_lengths, shards_of_lengths
from trainer.batch import Batch
from trainer.steps_ahead import StepsAhead
from trainer.stream import Stream

RATE = {"shape": "constant", "start": 1e-3}
PHASES = [
    {"name": "0", "context_tokens": 16, "batch_tokens": 64, "tokens": 640, "learning_rate": RATE},
    {"name": "1", "context_tokens": 64, "batch_tokens": 128, "tokens": 1_280, "learning_rate": RATE},
]
DEPTHS = (0, 1, 3)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return shards_of_lengths(tmp_path_factory.mktemp("s"), random_lengths(4, {"web": 180, "code": 150}))


@pytest.fixture(scope="module")
def schedule(shards: ShardSet) -> Schedule:
    settings = ScheduleSettings.model_validate({"phases": PHASES, "default_max_epochs": 50})
    return resolve(settings, shards.catalog.tokens_per_domain())


def read(stream: Stream, step: int) -> list[Batch]:
    return [stream.batch(step, slice(0, 1)), stream.batch(step, slice(1, 2))]


def bytes_of(batches: list[Batch]) -> list[bytes]:
    return [a.tobytes() for b in batches for a in (b.tokens, b.targets, b.document, b.positions)]


def waited_for(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.001)
    return condition()


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_same_bytes_at_any_depth(shards: ShardSet, schedule: Schedule, depth: int) -> None:
    plain = Stream(shards, schedule, 5)
    with StepsAhead(Stream(shards, schedule, 5), read, depth) as ahead:
        for step in range(schedule.steps):
            assert ahead.state(step) == plain.state()
            taken = ahead.take(step)
            assert (taken.step, taken.plan.rows) == (step, plain.plan(step).rows)
            assert np.array_equal(taken.plan.placed.document, plain.plan(step).placed.document)
            assert bytes_of(taken.batches) == bytes_of(read(plain, step))
            assert taken.after == plain.state()
    assert not any(thread.name == "headrace-steps" for thread in threading.enumerate())


@pytest.mark.parametrize("depth", DEPTHS)
def test_steps_that_are_passed_over_or_asked_for_again(shards: ShardSet, schedule: Schedule, depth: int) -> None:
    plain = Stream(shards, schedule, 5)
    with StepsAhead(Stream(shards, schedule, 5), read, depth) as ahead:
        for step in (0, 1, 4, 5, 2, 19, 0):
            assert bytes_of(ahead.take(step).batches) == bytes_of(read(plain, step))
        plain.seek(7)
        assert ahead.state(7) == plain.state()
        assert bytes_of(ahead.take(7).batches) == bytes_of(read(plain, 7))


@pytest.mark.parametrize("depth", DEPTHS)
def test_after_it_is_closed_it_continues_where_it_was(shards: ShardSet, schedule: Schedule, depth: int) -> None:
    plain = Stream(shards, schedule, 5)
    ahead = StepsAhead(Stream(shards, schedule, 5), read, depth)
    for step in range(6):
        with ahead:
            assert bytes_of(ahead.take(step).batches) == bytes_of(read(plain, step))
        assert ahead.state(step + 1) == plain.state()


@pytest.mark.parametrize("depth", [1, 3])
def test_no_more_steps_are_read_ahead_than_its_depth(shards: ShardSet, schedule: Schedule, depth: int) -> None:
    begun: list[int] = []

    def counted(stream: Stream, step: int) -> list[Batch]:
        begun.append(step)
        return []

    with StepsAhead(Stream(shards, schedule, 5), counted, depth) as ahead:
        for step in range(8):
            ahead.take(step)
            assert waited_for(lambda step=step: len(begun) == step + 1 + depth)
            time.sleep(0.005)
            assert len(begun) == step + 1 + depth
    assert begun == list(range(8 + depth))


def test_steps_are_read_while_another_is_computed(shards: ShardSet, schedule: Schedule) -> None:
    names: list[str] = []

    def named(stream: Stream, step: int) -> list[Batch]:
        names.append(threading.current_thread().name)
        return []

    with StepsAhead(Stream(shards, schedule, 5), named, 1) as ahead:
        ahead.take(0)
        assert waited_for(lambda: len(names) == 2)
    assert set(names) == {"headrace-steps"}


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_failure_comes_with_its_own_message_at_its_own_step(shards: ShardSet, schedule: Schedule, depth: int) -> None:
    def failing(stream: Stream, step: int) -> list[Batch]:
        if step == 3:
            raise MemoryError("no room for step 3")
        return []

    with StepsAhead(Stream(shards, schedule, 5), failing, depth) as ahead:
        for step in range(3):
            ahead.take(step)
        with pytest.raises(MemoryError, match="no room for step 3"):
            ahead.take(3)
    assert not any(thread.name == "headrace-steps" for thread in threading.enumerate())


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_shard_that_vanishes_is_named(tmp_path: Path, schedule: Any, depth: int) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(4, {"web": 180, "code": 150}))
    for path in tmp_path.glob("web*.tokens.arrow"):
        path.unlink()
    missing = pytest.raises(IncompleteError, match=r"shard web.*tokens\.arrow is missing")
    with StepsAhead(Stream(shards, schedule, 5), read, depth) as ahead, missing:
        list(map(ahead.take, range(schedule.steps)))


def test_past_the_end_there_is_nothing(shards: ShardSet, schedule: Schedule) -> None:
    with StepsAhead(Stream(shards, schedule, 5), read, 2) as ahead:
        ahead.take(schedule.steps - 1)
        ahead.state(schedule.steps)
        with pytest.raises(ValueError, match="so no step"):
            ahead.take(schedule.steps)
