from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import IncompleteError, UserError
from shards.schema import DOCUMENT
from stages import failing
from stages.failing import (
    DETAIL_CHARS,
    FAILURES,
    PIECES,
    STAGE_ERROR,
    Failure,
    call_again,
    call_first,
    error_of,
    harmless,
    held_stderr,
)


class PanicError(BaseException):
    """What a panic in Rust becomes in Python: no Exception."""


def settled(rows: range, guilty: set[int]) -> tuple[list[tuple[range, list[int] | Failure]], list[range]]:
    """Settle calls that return their rows and fail on those in ``guilty``; and give all ranges called on."""
    calls = []

    def call(of: range) -> list[int]:
        calls.append(of)
        for row in of:
            if row in guilty:
                raise PanicError(f"row {row} among {len(of)}")
        return list(of)

    return failing.settle(rows, call, Failure.of), calls


@given(st.integers(1, 400), st.data())
def test_exactly_the_guilty_rows_fail_and_all_others_have_their_result(count: int, data: st.DataObject) -> None:
    guilty = data.draw(st.sets(st.integers(0, count - 1), max_size=6))
    found, calls = settled(range(count), guilty)
    assert [row for rows, _ in found for row in rows] == list(range(count))
    for rows, result in found:
        if isinstance(result, Failure):
            assert (len(rows), rows[0] in guilty) == (1, True)
            # What is said comes from the call on the row alone: the same in any batch.
            assert result == Failure(STAGE_ERROR, f"PanicError: row {rows[0]} among 1")
        else:
            assert result == list(rows)
            assert not guilty & set(rows)
    levels = 1
    while PIECES**levels < count:
        levels += 1
    assert len(calls) <= 1 + len(guilty) * levels * PIECES


def test_a_document_of_two_thousand_is_found_by_four_failed_calls() -> None:
    _, calls = settled(range(2_000), {1_234})
    assert sum(1_234 in rows for rows in calls) == 4


def test_rows_that_fail_only_together_all_have_a_result() -> None:
    def call(rows: range) -> int:
        if len(rows) > 5:
            raise MemoryError
        return len(rows)

    found = failing.settle(range(100), call, Failure.of)
    assert sum(len(rows) for rows, _ in found) == 100
    assert not any(isinstance(result, Failure) for _, result in found)


def test_what_is_no_failure_is_raised_and_nothing_more_is_tried() -> None:
    calls = []

    def call(rows: range) -> None:
        calls.append(rows)
        raise ValueError("not a document's")

    with pytest.raises(ValueError, match="not a document's"):
        failing.settle(range(10), call, lambda error: None)
    assert calls == [range(10)]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ValueError("bad page"), "ValueError: bad page"),
        (MemoryError(), "MemoryError"),
        (PanicError("regex: over\n at line 7"), "PanicError: regex: over"),
        (ValueError("\n\n second line first\nthird"), "ValueError: second line first"),
        (ValueError("\ud800 half a pair"), "ValueError: ? half a pair"),
        (TypeError("<object at 0x7f3fa51bd2e0> is 0x1f"), "TypeError: <object at 0x…> is 0x1f"),
        (UnspeakableError(), "UnspeakableError"),
        (ValueError("x" * 10**6), f"ValueError: {'x' * (DETAIL_CHARS - 12)}"),
    ],
)
def test_a_detail_is_type_and_first_line_and_the_same_in_any_run(error: BaseException, detail: str) -> None:
    assert Failure.of(error) == Failure(STAGE_ERROR, detail)
    pa.array([detail], pa.string())


@settings(max_examples=50)
@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_message_becomes_a_short_line_of_utf8(message: str) -> None:
    detail = Failure.of(ValueError(message)).detail
    assert len(detail) <= DETAIL_CHARS
    assert len(detail.splitlines()) == 1
    assert pa.array([detail], pa.string()).to_pylist() == [detail]


def raising(error: BaseException) -> None:
    raise error


def test_the_type_of_a_documents_error_is_told_and_others_are_raised() -> None:
    assert error_of(lambda: None) is None
    assert error_of(lambda: raising(PanicError())) is PanicError
    others = [UserError("wrong"), IncompleteError("torn"), FileNotFoundError("gone"), KeyboardInterrupt(), SystemExit()]
    for error in others:
        with pytest.raises(type(error)):
            error_of(lambda error=error: raising(error))  # type: ignore[misc]


def test_a_harmless_document_has_the_columns_of_the_others() -> None:
    schema = DOCUMENT.append(pa.field("score", pa.float64())).append(pa.field("signature", pa.list_(pa.uint32(), 4)))
    found = harmless(schema)
    assert found.schema.equals(schema)
    (row,) = found.to_pylist()
    assert len(row["text"]) > 50
    assert (row["dropped_by"], row["failed"], row["score"], row["signature"]) == (None, False, None, None)
    assert harmless(pa.schema([("text", pa.large_string())])).num_rows == 1


@contextlib.contextmanager
def stderr_in(path: Path) -> Iterator[None]:
    """File descriptor 2 of this process, as a file."""
    before = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def test_what_is_held_comes_afterwards_or_not_at_all_where_the_body_raises(tmp_path: Path) -> None:
    path = tmp_path / "stderr"
    with stderr_in(path):
        with held_stderr():
            os.write(2, b"kept\n")
            assert path.read_bytes() == b""
        with contextlib.suppress(ValueError), held_stderr():
            os.write(2, b"dropped\n")
            raise ValueError
        os.write(2, b"after\n")
    assert path.read_bytes() == b"kept\nafter\n"


def test_a_second_thread_does_not_wait_for_the_first(tmp_path: Path) -> None:
    entered: list[str] = []

    def other() -> None:
        with held_stderr():
            entered.append("other")

    with stderr_in(tmp_path / "stderr"):
        with held_stderr():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(10)
        os.write(2, b"restored\n")
    assert entered == ["other"]
    assert (tmp_path / "stderr").read_bytes() == b"restored\n"


def test_a_call_without_a_standard_error_goes_on() -> None:
    code = "import os; os.close(2)\nfrom stages.failing import held_stderr\nwith held_stderr(): print('done')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, check=True)
    assert done.stdout == b"done\n"


def test_of_many_panics_one_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(failing, "_panicked", False)

    def call(rows: range) -> None:
        os.write(2, b"panicked\n")
        raise PanicError if rows[0] % 2 else ValueError

    def settle(rows: range) -> None:
        try:
            call_first(call, rows)
        except BaseException as error:
            failing.settle_failed(rows, error, lambda rows: call_again(call, rows), Failure.of)

    with stderr_in(tmp_path / "stderr"):
        settle(range(20))
        settle(range(20))
    # By the first call of all. Repeated ones are silent, and so is the next batch, because there were panics before.
    assert (tmp_path / "stderr").read_bytes() == b"panicked\n"


def test_generic_failures_have_names_of_their_own() -> None:
    assert len({*FAILURES}) == 2
