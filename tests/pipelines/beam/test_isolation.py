from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.beam import isolation
from pipelines.beam.apply import _Mark
from pipelines.beam.child import CallError, ChildDiedError, ChildStartError
from pipelines.beam.coder import RecordBatchCoder
from shards.errors import UserError
from stages import marking, readers
from stages.base import Stage
from stages.failing import KILLED_PROCESS, STAGE_ERROR, Failure
from stages.judges.sample import Sample
from stages.readers.base import Source
from stages.tokenizer import Encoded, TokenizerUse, fit_bpe, joined_tokens, load_encoder
from tests.pipelines.beam.killers import DEATHS, Deadly, Killer, PanicError, documents, open_deadly

# Starts processes.
pytestmark = pytest.mark.integration

KILLER, TAME = cast(Stage, Killer()), cast(Stage, Killer(is_tame=True))
ERRORS = {"!raise": "ValueError: met", "!panic": "PanicError: met"}


class Pretended:
    """A child that calls in this process, and says that it died where a real one would have."""

    def __init__(self) -> None:
        self.deaths = 0

    def call(self, function: Any, argument: Any, batch: pa.RecordBatch | None = None) -> Iterator[pa.RecordBatch]:
        try:
            for text in [] if batch is None else batch.column("text").to_pylist():
                self.check(argument, text)
        except ChildDiedError:
            self.deaths += 1
            raise
        try:
            yield from function(argument, batch)
        except (ValueError, PanicError) as error:
            raise CallError(Failure.of(error).detail) from error

    def check(self, argument: Any, text: str) -> None:
        if text in DEATHS:
            raise ChildDiedError(DEATHS[text])

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    made = Pretended()
    monkeypatch.setattr(isolation, "_child", made)
    return made


@pytest.fixture(scope="module", autouse=True)
def no_child_stays() -> Iterator[None]:
    yield
    isolation.close()


def expected(batch: pa.RecordBatch, stage: Stage) -> list[dict[str, Any]]:
    """What becomes of each row alone, by the stage that nothing kills."""
    found = []
    for row in range(batch.num_rows):
        (before,), (after,) = batch.slice(row, 1).to_pylist(), marking.mark(stage, batch.slice(row, 1)).to_pylist()
        text, is_judged = before["text"], after["chars"] is not None
        if is_judged and (text in DEATHS or text in ERRORS):
            after = before | {"chars": None, "killer_v1.length": None, "dropped_by": stage.name, "failed": True}
            after |= {"reason": KILLED_PROCESS if text in DEATHS else STAGE_ERROR}
            after |= {"detail": DEATHS.get(text) or ERRORS[text]}
        found.append(after)
    return found


def isolated(batch: pa.RecordBatch) -> pa.RecordBatch:
    (found,) = isolation.isolate(iter([batch]))
    return found


TEXTS = st.sampled_from([*DEATHS, *ERRORS, "", "ab", "a text", "a longer text", "12"])
QUICK = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(texts=st.lists(TEXTS, max_size=40), cuts=st.sets(st.integers(0, 40), max_size=3), domains=st.booleans())
def test_documents_that_kill_fail_and_all_others_have_their_verdict_in_any_batch(
    pretended: Pretended, texts: list[str], cuts: set[int], domains: bool
) -> None:
    batch = isolated(documents(texts))
    killer, tame = (cast(Stage, Killer(is_tame=tame, domains=("web",) if domains else ())) for tame in (False, True))
    edges = [0, *sorted(cut for cut in cuts if cut <= len(texts)), len(texts)]
    parts = [isolation.mark(killer, batch.slice(at, end - at)) for at, end in itertools.pairwise(edges)]
    assert pa.Table.from_batches(parts).to_pylist() == expected(batch, tame)
    assert all(isolation.is_isolated(part) for part in parts)


def test_apply_isolates_what_says_so(pretended: Pretended) -> None:
    batch = documents(["a text", "!kill"])
    (found,) = _Mark(KILLER).work(isolated(batch))
    assert found.column("reason").to_pylist() == [None, KILLED_PROCESS]
    (found,) = _Mark(TAME).work(batch)
    assert found.column("reason").to_pylist() == [None, None]
    assert pretended.deaths == 2


def test_a_process_that_somebody_else_ended_fails_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unlucky(Pretended):
        """Dies of every tenth call, whatever it is."""

        calls = 0

        def check(self, argument: Any, text: str) -> None:
            self.calls += 1
            if self.calls % 10 == 1:
                raise ChildDiedError("SIGKILL")

    monkeypatch.setattr(isolation, "_child", Unlucky())
    for texts in (["a text"], ["a text", "another"]):
        assert isolation.mark(KILLER, isolated(documents(texts))).column("failed").to_pylist() == [False] * len(texts)


def as_bytes(batch: pa.RecordBatch) -> bytes:
    return RecordBatchCoder().encode(batch.replace_schema_metadata(None))


@pytest.mark.parametrize("stage", [TAME, cast(Stage, Sample(share=0.5, seed=3, domains=("web",)))])
def test_where_nobody_dies_the_bytes_are_those_of_mark(stage: Stage) -> None:
    batch = documents(["a text", "12", "a", "", "the mill and the river " * 50])
    for piece in (batch, batch.slice(1, 2), batch.slice(0, 1), batch.slice(0, 0)):
        assert as_bytes(isolation.mark(stage, isolated(piece))) == as_bytes(marking.mark(stage, piece))
        assert as_bytes(isolation.mark(stage, piece)) == as_bytes(marking.mark(stage, piece))


def test_a_process_is_really_killed_and_what_its_libraries_print_is_in_nobodys_way(
    capfd: pytest.CaptureFixture[str],
) -> None:
    batch = isolated(documents(["a text", "!segv", "12", "!raise", "!exit", "ab", "!panic"]))
    found = isolation.mark(KILLER, batch)
    assert capfd.readouterr() == ("", "")
    assert found.to_pylist() == expected(batch, TAME)


@pytest.mark.integration
@settings(deadline=None, max_examples=12)
@given(texts=st.lists(TEXTS, max_size=20), cut=st.integers(0, 20))
def test_any_documents_may_kill_a_process(texts: list[str], cut: int) -> None:
    batch = isolated(documents(texts))
    parts = [isolation.mark(KILLER, part) for part in (batch.slice(0, cut), batch.slice(cut))]
    assert pa.Table.from_batches(parts).to_pylist() == expected(batch, TAME)


@pytest.mark.parametrize(
    ("way", "error", "said"),
    [
        ("!kill", ChildStartError, "deadly_v1 ends its process on any document: SIGKILL"),
        ("user", UserError, "no model. Where: here. Add one"),
        ("os", FileNotFoundError, "model.bin"),
        ("bug", CallError, "KeyError: 'nowhere'"),
    ],
)
def test_a_broken_stage_fails_no_document(way: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        isolation.mark(cast(Stage, Deadly(way=way)), isolated(documents(["a", "b"])))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TokenizerUse:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(fit_bpe(["the mill and the river"] * 5, 280, "<|end|>"))
    return TokenizerUse(str(path), "<|end|>")


def same(one: Encoded, other: Encoded) -> bool:
    arrays = zip(one[:2], other[:2], strict=True)
    return one.failures == other.failures and all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in arrays)


def test_texts_are_encoded_alike_by_a_child(tokenizer: TokenizerUse) -> None:
    for texts in (["the mill", "", "a river"], [""], []):
        batch = documents(texts)
        plain = isolation.encode(tokenizer, batch)
        assert same(plain, load_encoder(tokenizer).encode(texts))
        assert same(isolation.encode(tokenizer, isolated(batch)), plain)


@QUICK
@given(texts=st.lists(TEXTS, max_size=40), at=st.integers(0, 40))
def test_texts_that_kill_have_no_tokens(
    pretended: Pretended, tokenizer: TokenizerUse, texts: list[str], at: int
) -> None:
    batch = isolated(documents(texts))
    at = min(at, len(texts))
    whole = isolation.encode(tokenizer, batch)
    spared = load_encoder(tokenizer).encode(["" if text in DEATHS else text for text in texts])
    deaths = {row: Failure(KILLED_PROCESS, DEATHS[text]) for row, text in enumerate(texts) if text in DEATHS}
    assert same(whole, spared._replace(failures=deaths))
    parts = [isolation.encode(tokenizer, part) for part in (batch.slice(0, at), batch.slice(at))]
    assert same(joined_tokens([(range(at), parts[0]), (range(at, len(texts)), parts[1])]), whole)


def test_failures_of_the_child_itself_come_back(pretended: Pretended, monkeypatch: pytest.MonkeyPatch) -> None:
    class Half:
        def encode(self, texts: list[str]) -> Encoded:
            return Encoded(np.array([7], np.uint32), np.array([0, 0, 1]), {0: Failure(STAGE_ERROR, "Panic: x")})

    monkeypatch.setattr(isolation, "load_encoder", lambda use: Half())
    found = isolation.isolated_encode(TokenizerUse("path"), pa.array(["a", "b"]))
    assert found.failures == {0: Failure(STAGE_ERROR, "Panic: x")}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A source of three batches, read in 90 records of 100 kB."""
    path = tmp_path_factory.mktemp("source") / "a.jsonl"
    lines = (json.dumps({"text": f"{number} {'mill ' * 20_000}"}) + "\n" for number in range(90))
    path.write_text("".join(lines))
    return Source(7, str(path), domain="docs", licence="own")


class DyingOnError(Pretended):
    """A child in which ``!raise`` stands for a death."""

    def call(self, function: Any, argument: Any, batch: pa.RecordBatch | None = None) -> Iterator[pa.RecordBatch]:
        try:
            yield from function(argument, batch)
        except ValueError:
            raise ChildDiedError("SIGSEGV") from None


def deadly(source: Source, demand: str, at: int) -> Source:
    return Source(**{**vars(source), "path": f"{source.path}{demand}@{at}"})


def test_a_source_is_read_alike_by_a_child(source: Source) -> None:
    plain = list(readers.read(source, open_deadly))
    assert len(plain) == 3
    for is_isolated in (False, True):
        found = list(isolation.read(source, open_deadly, isolated=is_isolated))
        assert [as_bytes(batch) for batch in found] == [as_bytes(batch) for batch in plain]


def check_cut_short(found: list[pa.RecordBatch], whole: list[pa.RecordBatch], reason: str, detail: str) -> int:
    """Check that batches are the first of the whole, and then a row that failed; return how many."""
    *read, last = found
    assert [as_bytes(batch) for batch in read] == [as_bytes(batch) for batch in whole[: len(read)]]
    (row,) = last.to_pylist()
    rows = sum(batch.num_rows for batch in read)
    assert last.schema.equals(whole[0].schema)
    assert (row["doc_id"], row["source_index"], row["domain"]) == ((7 << 32) + rows, 7, "docs")
    assert (row["dropped_by"], row["reason"], row["failed"]) == ("read", reason, True)
    assert row["detail"] == f"not read from here on: {detail}"
    assert row["offset"] == (read[-1].column("offset")[-1].as_py() if read else 0)
    return len(read)


@pytest.mark.parametrize("at", [0, 3_000_000, 6_000_000, 8_900_000])
def test_a_reader_that_fails_or_dies_is_one_row_after_those_that_it_read(
    source: Source, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = list(readers.read(source, open_deadly))
    for demand, detail in ERRORS.items():
        found = list(isolation.read(deadly(source, demand, at), open_deadly, isolated=False))
        read = check_cut_short(found, whole, STAGE_ERROR, detail)
    monkeypatch.setattr(isolation, "Child", DyingOnError)
    found = list(isolation.read(deadly(source, "!raise", at), open_deadly, isolated=True))
    assert check_cut_short(found, whole, KILLED_PROCESS, "SIGSEGV") == read == at // 4_100_000


def test_a_reading_process_is_really_killed(source: Source) -> None:
    whole = list(readers.read(source, open_deadly))
    found = list(isolation.read(deadly(source, "!abort", 6_000_000), open_deadly, isolated=True))
    assert check_cut_short(found, whole, KILLED_PROCESS, "SIGABRT") == 1
    with pytest.raises(OSError, match="cannot be opened"):
        list(isolation.read(Source(0, "/nowhere/a.jsonl"), open_deadly, isolated=True))


def test_a_reader_that_somebody_else_ended_reads_on(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(readers.read(source, open_deadly))

    class Unlucky(Pretended):
        """Dies after one batch, then after two, and never at the same place twice."""

        times = 0

        def call(self, function: Any, argument: Any, batch: pa.RecordBatch | None = None) -> Iterator[pa.RecordBatch]:
            Unlucky.times += 1
            yield from itertools.islice(function(argument, batch), Unlucky.times)
            if Unlucky.times < 3:
                raise ChildDiedError("SIGKILL")

    monkeypatch.setattr(isolation, "Child", Unlucky)
    found = list(isolation.read(source, open_deadly, isolated=True))
    assert [as_bytes(batch) for batch in found] == [as_bytes(batch) for batch in whole]


def test_a_reader_that_is_not_read_to_its_end_leaves_no_process(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    class Closing(Pretended):
        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(isolation, "Child", Closing)
    reading = isolation.read(source, open_deadly, isolated=True)
    next(reading)
    cast(Any, reading).close()
    assert closed == [True]
