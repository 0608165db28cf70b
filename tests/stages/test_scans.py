from __future__ import annotations

import gc
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages import scans
from stages.base import Stage, score_column, stage, text_of
from stages.checks import Check
from stages.failing import STAGE_ERROR
from stages.judges.gopher_quality import GopherQuality
from stages.judges.gopher_repetition import GopherRepetition
from stages.limits import AtLeastZero
from stages.marking import mark
from stages.scans import Scan
from stages.scores import Count, Values
from stages.text import word_scan
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]


class PanicError(BaseException):
    """What a panic in Rust becomes in Python: no Exception."""


ERRORS: dict[str, type[BaseException]] = {"!": ValueError, "?": PanicError, ";": IndexError}
SCANNED: list[list[str]] = []
"""The texts of every call of the scan of ``Letters``."""


def scanned(batch: pa.RecordBatch) -> pa.Array:
    texts = text_of(batch)
    SCANNED.append(texts)
    for text in texts:
        if text[:1] in ERRORS:
            raise ERRORS[text[:1]](f"a scan of {text}")
    return pa.array([[len(text), text.count("a")] for text in texts], pa.list_(pa.int64(), 2))


@stage
class Letters:
    """Drops short texts by a scan that others share, and raises an error on texts with a bar."""

    name: ClassVar[str] = "letters_v1"
    needs = ("text", "language")
    scores = (Count("chars"), Count("a"))
    checks = (Check("short", "chars", min="min_chars"), Check("many_a", "a", max="max_a"))

    min_chars: AtLeastZero = 0
    max_a: AtLeastZero = 100
    key: str = ""

    @property
    def scans(self) -> tuple[Scan, ...]:
        """The scan of letters."""
        return (Scan("letters", ("text",), scanned, self.key),)

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Measure by the scan, of which each row has its own."""
        for text in text_of(batch):
            if "|" in text:
                raise ValueError(f"the bar of {text}")
        found = batch.column(self.scans[0].column).flatten().to_numpy().reshape(batch.num_rows, 2)
        return {"chars": found[:, 0], "a": found[:, 1]}


@stage
class Upper:
    """Replaces the text."""

    name: ClassVar[str] = "upper_v1"

    def measure(self, batch: pa.RecordBatch) -> Any:
        """Put an ``a`` before every text."""
        from stages.base import Measured

        return Measured(columns={"text": pa.array([f"a{text}" for text in text_of(batch)])})


@pytest.fixture(autouse=True)
def calls() -> Iterator[list[list[str]]]:
    """The texts of every call of the scan, of this test."""
    scans.forget()
    SCANNED.clear()
    yield SCANNED
    scans.forget()


def run(stages: list[Stage], batch: pa.RecordBatch, *, shared: bool = True) -> pa.RecordBatch:
    """Apply stages in turn; without sharing, each on a copy that has nothing in common with what was before."""
    for one in stages:
        if not shared:
            scans.forget()
        batch = mark(one, batch)
    return batch


def test_two_instances_of_a_stage_share_one_scan(documents: Batches, calls: list[list[str]]) -> None:
    batch = documents(3, text=["aab", "b", None])
    found = run([stage_of(Letters, instance=name) for name in ("one", "two", "three")], batch)
    assert calls == [["aab", "b", ""]]
    assert found.column("three.a").to_pylist() == found.column("one.a").to_pylist() == [2, 0, 0]


def test_both_gopher_stages_and_their_instances_share_one_scan(
    documents: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned: list[int] = []
    real = word_scan.scan_words

    def scan(text: pa.Array) -> pa.StructArray:
        scanned.append(len(text))
        return real(text)

    monkeypatch.setattr(word_scan, "scan_words", scan)
    texts = ["It was the best of times, and the worst of them. " * 8, "short", "the of and to " * 20]
    batch = documents(3, text=texts, language=["en"] * 3)
    mild = stage_of(GopherQuality, min_words=1, min_stop_words=0, instance="mild")
    strict = stage_of(GopherQuality, instance="strict")
    other = stage_of(GopherQuality, stop_words={"en": ("best",)}, min_words=1, min_stop_words=0, instance="other")
    found = run([mild, other, strict, stage_of(GopherRepetition)], batch)
    assert scanned == [3]
    assert found.column("reason").to_pylist() == ["top_2gram_chars", "too_few_words", "short_words"]
    names = [score.name for score in GopherQuality.scores]
    # Of the document that the first dropped, the others have no score, although the scan knows it.
    assert [found.column(f"strict.{name}")[2].as_py() for name in names] == [None] * len(names)
    assert found.column("other.stop_words").to_pylist() == [1, 0, None]


def test_a_scan_is_made_of_the_rows_that_lack_it_and_of_no_others(documents: Batches, calls: list[list[str]]) -> None:
    batch = documents(4, text=["a", "bb", "cc", "ddd"], domain=["web", "code", "web", "code"])
    first, second = stage_of(Letters, domains=("web",), instance="one"), stage_of(Letters, min_chars=2, instance="two")
    found = run([first, second, stage_of(Letters, instance="three")], batch)
    assert calls == [["a", "cc"], ["bb", "ddd"]]
    assert found.column("one.chars").to_pylist() == [1, None, 2, None]
    assert found.column("two.chars").to_pylist() == [1, 2, 2, 3]
    assert found.column("three.chars").to_pylist() == [None, 2, 2, 3]


def test_a_scan_of_another_key_or_another_text_is_another(documents: Batches, calls: list[list[str]]) -> None:
    batch = documents(2, text=["a", "b"])
    found = run([stage_of(Letters), stage_of(Letters, key="x", instance="two")], batch)
    assert calls == [["a", "b"]] * 2
    # A stage in between that replaces the text, and one that replaces another column.
    found = run([stage_of(Upper), stage_of(Letters, instance="three")], found)
    assert calls[2:] == [["aa", "ab"]]
    assert found.column("three.chars").to_pylist() == [2, 2]
    run([stage_of(Letters, instance="four")], documents(2, text=["a", "b"]))
    assert calls[3:] == [["a", "b"]]


def test_pieces_of_one_batch_are_not_taken_for_each_other(documents: Batches) -> None:
    batch = documents(6, text=["", "a", "aa", "b", "bb", "bbb"])
    parts = [mark(stage_of(Letters), batch.slice(start, 2)) for start in (0, 2, 4, 0)]
    assert [part.column("letters_v1.chars").to_pylist() for part in parts] == [[0, 1], [2, 1], [2, 3], [0, 1]]


TEXTS = st.sampled_from([None, "", "a", "aab", "bbbb", "!", "?", ";", "a|", "!a"])
ROWS = st.lists(st.tuples(TEXTS, st.sampled_from(["web", "code"]), st.booleans()), max_size=10)
INSTANCES = st.fixed_dictionaries(
    {
        "domains": st.sampled_from([(), ("web",), ("code", "x")]),
        "min_chars": st.integers(0, 4),
        "max_a": st.integers(0, 2),
        "key": st.sampled_from(["", "x"]),
    }
)
CHAINS = st.lists(INSTANCES | st.none(), max_size=4)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, chain=CHAINS, data=st.data())
def test_whether_scans_are_shared_cannot_be_seen_in_any_batch(
    documents: Batches,
    rows: list[tuple[str | None, str, bool]],
    chain: list[dict[str, Any] | None],
    data: st.DataObject,
) -> None:
    batch = documents(
        len(rows),
        text=[text for text, _, _ in rows],
        domain=[domain for _, domain, _ in rows],
        dropped_by=["before_v1" if dropped else None for *_, dropped in rows],
    )
    # None replaces the text in the middle of the chain.
    stages = [
        stage_of(Upper, instance=f"s{at}") if given_ is None else stage_of(Letters, **given_, instance=f"s{at}")
        for at, given_ in enumerate(chain)
    ]
    apart = run(stages, batch, shared=False)
    assert run(stages, batch) == apart
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)), max_size=3)))
    edges = [0, *cuts, len(rows)]
    parts = [run(stages, batch.slice(start, end - start)) for start, end in itertools.pairwise(edges)]
    assert pa.Table.from_batches(parts).to_pylist() == apart.to_pylist()
    for row in apart.to_pylist():
        seen = True
        for one in stages:
            if isinstance(one, Letters):
                # No score of a row that an earlier stage marked, or of another domain.
                is_live = (
                    seen and (not one.domains or row["domain"] in one.domains) and row["dropped_by"] != "before_v1"
                )
                is_failed = row["reason"] == STAGE_ERROR and row["dropped_by"] == one.instance
                assert (row[score_column(one, "chars")] is not None) == (is_live and not is_failed)
            seen = seen and row["dropped_by"] != one.instance


@pytest.mark.parametrize("sign", ERRORS)
def test_a_scan_that_fails_on_a_document_fails_it_and_no_other(documents: Batches, sign: str) -> None:
    batch = documents(4, text=["a", f"{sign}b", "ccc", "d"])
    found = run([stage_of(Letters), stage_of(Letters, instance="two", min_chars=2)], batch)
    assert found.column("reason").to_pylist() == ["short", STAGE_ERROR, None, "short"]
    assert found.column("detail").to_pylist()[1] == f"{ERRORS[sign].__name__}: a scan of {sign}b"
    assert found.column("letters_v1.chars").to_pylist() == [1, None, 3, 1]


def test_a_stage_that_fails_on_a_document_is_not_taken_for_broken_because_of_its_scan(documents: Batches) -> None:
    # The plain document that tells a broken stage has no scan of its own; a stage that reads one must not fail on it.
    found = mark(stage_of(Letters), documents(3, text=["a", "b|", "c"]))
    assert found.column("reason").to_pylist() == [None, STAGE_ERROR, None]


@pytest.mark.parametrize("error", [UserError("no list"), FileNotFoundError("gone"), KeyboardInterrupt()])
def test_a_scan_that_raises_what_is_not_of_a_document_is_called_once(documents: Batches, error: BaseException) -> None:
    called: list[int] = []

    def broken(batch: pa.RecordBatch) -> pa.Array:
        called.append(batch.num_rows)
        raise error

    @stage
    class Broken:
        """Asks for a scan that cannot be made."""

        name: ClassVar[str] = "broken_v1"
        scans = (Scan("broken", ("text",), broken),)

        def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
            """Measure nothing."""
            return {}

    with pytest.raises(type(error)):
        mark(stage_of(Broken), documents(20))
    assert called == [20]


def test_nothing_of_a_batch_is_held_after_the_next(documents: Batches) -> None:
    judge = stage_of(Letters)
    mark(judge, documents(1, text=["a"]))
    before = pa.total_allocated_bytes()
    for key in ("", "x", "y", ""):
        mark(stage_of(Letters, key=key), documents(1, text=["a" * 1_000_000]))
    mark(stage_of(Letters, key="z"), documents(1, text=["a"]))
    gc.collect()
    assert pa.total_allocated_bytes() - before < 500_000


def test_each_thread_has_its_own_last_batch(documents: Batches) -> None:
    batch = documents(50, text=[f"a{n}" for n in range(50)])
    expected = mark(stage_of(Letters), batch).column("letters_v1.chars").to_pylist()
    wrong: list[object] = []

    def work(number: int) -> None:
        own = documents(number + 1, text=["x" * number] * (number + 1))
        for _ in range(20):
            if mark(stage_of(Letters), batch).column("letters_v1.chars").to_pylist() != expected:
                wrong.append(number)
            if mark(stage_of(Letters), own).column("letters_v1.chars").to_pylist() != [number] * (number + 1):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_scan_may_have_any_type(documents: Batches) -> None:
    forms: list[Callable[[list[str]], pa.Array]] = [
        pa.array,
        lambda texts: pa.array([[1.5]] * len(texts)),
        lambda texts: pa.array(texts).dictionary_encode(),
        lambda texts: pa.array([{"a": text} for text in texts]),
    ]
    for make in forms:
        scan = Scan("any", ("text",), lambda batch, make=make: make(text_of(batch)))  # type: ignore[misc]
        batch = documents(3, text=["a", "b", "c"])
        for rows in (np.array([1]), np.array([0, 1, 2]), np.array([0, 2])):
            shown = batch.select(["text"]).take(pa.array(rows))
            found = scans.with_shared((scan,), batch, rows, shown)
            assert found.column("scan:any").to_pylist() == make(text_of(shown)).to_pylist()
        scans.forget()
