from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.beam import isolation
from pipelines.beam.attempts import Attempts, run_until_done
from shards.store import Store


class Counted(Store):
    """A store that notes the calls."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.calls: list[str] = []

    def open(self, path: str) -> pa.NativeFile:
        self.calls.append("open")
        return super().open(path)

    def write_bytes(self, path: str, data: bytes) -> None:
        self.calls.append("write_bytes")
        super().write_bytes(path, data)

    def delete(self, path: str) -> None:
        self.calls.append("delete")
        super().delete(path)


def test_a_unit_that_did_not_end_is_isolated_the_next_time(tmp_path: Path) -> None:
    store = Counted(tmp_path)
    attempts = Attempts(store, "judge")
    assert not attempts.begin("00001-ab")
    assert store.list(".") == ["unfinished/judge/attempts/00001-ab"]
    # The process is gone; another tries again, and a third after that.
    assert Attempts(Store(tmp_path), "judge").begin("00001-ab")
    assert Attempts(Store(tmp_path), "judge").begin("00001-ab")
    assert not Attempts(Store(tmp_path), "judge").begin("00002-cd")
    assert not Attempts(Store(tmp_path), "write").begin("00001-ab")
    attempts.end("00001-ab")
    assert not attempts.begin("00001-ab")
    # Two calls for a begin and one for an end by an error.
    assert store.calls == ["open", "write_bytes", "delete", "open", "write_bytes"]


def test_a_unit_that_another_attempt_has_ended_may_end_again(tmp_path: Path) -> None:
    attempts = Attempts(Store(tmp_path), "judge")
    attempts.begin("a")
    attempts.end("a")
    attempts.end("a")
    assert Store(tmp_path).list(".") == []


def test_an_error_ends_a_unit_and_so_does_a_reader_that_nobody_reads_on(tmp_path: Path) -> None:
    store = Store(tmp_path)
    attempts = Attempts(store, "judge")

    def reading() -> Iterator[str]:
        with attempts.during("a") as isolated:
            assert not isolated
            assert store.list(".") == ["unfinished/judge/attempts/a"]
            yield "batch"
            raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        list(reading())
    assert store.list(".") == []
    begun = reading()
    next(begun)
    del begun
    assert store.list(".") == []
    attempts.begin("b")
    with contextlib.suppress(KeyboardInterrupt), attempts.during("b") as isolated:
        assert isolated
        raise KeyboardInterrupt
    assert store.list(".") == []


def test_units_that_were_stopped_are_forgotten(tmp_path: Path) -> None:
    store = Store(tmp_path)
    attempts = Attempts(store, "judge")
    attempts.begin("a")
    attempts.forget()
    attempts.forget()
    assert not attempts.begin("a")


def test_a_unit_that_commits_deletes_nothing(tmp_path: Path) -> None:
    store = Counted(tmp_path)
    with Attempts(store, "judge").during("a"):
        pass
    assert store.calls == ["open", "write_bytes"]


@pytest.mark.parametrize("error", [None, ValueError])
def test_the_end_of_a_unit_ends_the_child_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None
) -> None:
    closed: list[bool] = []
    monkeypatch.setattr(isolation, "close", lambda: closed.append(True))
    with contextlib.suppress(ValueError), Attempts(Store(tmp_path), "judge").during("a"):
        if error is not None:
            raise error
    assert closed == [True]


class DiedError(RuntimeError):
    pass


class Workers:
    """Commits units in order; ``deadly`` kills at the first attempts of a unit, so many of them."""

    def __init__(self, deadly: dict[str, int]) -> None:
        self.deadly, self.committed, self.runs = dict(deadly), set[str](), 0

    def run(self, units: Sequence[str]) -> None:
        self.runs += 1
        for unit in units:
            assert unit not in self.committed
            if self.deadly.get(unit, 0):
                self.deadly[unit] -= 1
                raise DiedError(unit)
            self.committed.add(unit)

    def pending(self, units: Sequence[str]) -> list[str]:
        return [unit for unit in units if unit not in self.committed]


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 2)))
def test_units_that_kill_a_few_times_are_all_done_and_none_twice(deadly: dict[str, int]) -> None:
    workers = Workers(deadly)
    run_until_done(workers.run, list("abcdefgh"), workers.pending, DiedError)
    assert workers.committed == set("abcdefgh")
    assert workers.runs == 1 + sum(deadly.values())


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_deaths_without_a_unit_done_end_the_run(limit: int) -> None:
    workers = Workers({"b": 100, "a": 1})
    with pytest.raises(DiedError, match="b"):
        run_until_done(workers.run, list("abc"), workers.pending, DiedError, limit + 1)
    # The death of a, then that of b, before which a was done; and from there on in vain.
    assert workers.runs == 2 + limit + 1
    assert workers.committed == {"a"}


def test_other_errors_are_raised_at_once() -> None:
    def run(units: Sequence[str]) -> Any:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_until_done(run, ["a"], list, DiedError)


def test_no_units_are_not_run() -> None:
    run_until_done(lambda units: pytest.fail("run"), [], list, DiedError)
