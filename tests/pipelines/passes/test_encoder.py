from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models, normalizers

from pipelines.beam.child import ChildDiedError
from pipelines.passes.encoder import MAX_TEXT_BYTES, SAMPLE_BYTES, own_texts, quick_fault, require_usable
from pipelines.passes.fit_tokenizer import UNFIT
from pipelines.tables import publish_table
from pipelines.view import ViewFiles
from shards.errors import UserError
from shards.reader import ShardSet
from shards.store import Store
from stages import tokenizer_trial
from stages.tokenizer import TokenizerUse, fit_bpe

END = "<|endoftext|>"
DROPS = pa.schema([("doc_id", pa.int64())])


def saved(folder: Path, tokenizer: Any) -> TokenizerUse:
    path = folder / "tokenizer.json"
    path.write_text(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str(), encoding="utf-8")
    return TokenizerUse(str(path))


def doubling(times: int) -> Any:
    """A tokeniser that gives 2^times letters for one: the file is small, and ends nowhere."""
    tokenizer = Tokenizer.from_str(fit_bpe(["the mill"], 300, END))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("e", "ee")] * times)
    return tokenizer


def test_a_tokenizer_that_does_not_end_is_refused_by_its_process(tmp_path: Path) -> None:
    require_usable(saved(tmp_path, fit_bpe(["the mill"], 300, END)))
    with pytest.raises(UserError, match="does not get through three plain lines of text") as caught:
        require_usable(saved(tmp_path, doubling(60)), cpu_seconds=2)
    assert caught.value.place == str(tmp_path / "tokenizer.json")


def test_what_the_trial_says_reaches_the_user(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(fit_bpe(["the mill"], 300, END))
    tokenizer.normalizer = normalizers.Replace("", "x")
    with pytest.raises(UserError, match="fails on a plain text"):
        require_usable(saved(tmp_path, tokenizer))
    with pytest.raises(UserError, match=r"not a tokenizer\.json"):
        require_usable(saved(tmp_path, "{}"))


def test_a_fault_is_said_also_where_the_process_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = pa.record_batch({"text": ["the mill"]})
    assert quick_fault(saved(tmp_path, fit_bpe(["the mill"], 300, END)), documents) is None
    words = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    assert "unsupported model" in str(quick_fault(saved(tmp_path, words), documents))

    def died(*_: Any) -> Any:
        raise ChildDiedError("SIGSEGV")

    monkeypatch.setattr("pipelines.passes.encoder.Child.call", died)
    assert quick_fault(saved(tmp_path, words), documents) == "comparing both ended the process (SIGSEGV)"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "run")


def split(store: Store, number: int, texts: list[str], dropped: list[int]) -> ViewFiles:
    ids = pa.array(range(number << 32, (number << 32) + len(texts)), pa.int64())
    table = pa.table({"doc_id": ids, "text": texts})
    drops = pa.table({"doc_id": [(number << 32) + row for row in dropped]}, schema=DROPS)
    documents = publish_table(store, table, "documents", str(number))
    return ViewFiles(documents, publish_table(store, drops, "drops", str(number)))


def test_the_sample_is_the_first_survivors_of_splits_that_lie_evenly(store: Store) -> None:
    files = [split(store, number, [f"{number} {row}" for row in range(3)], [0]) for number in range(10)]
    unfit = pa.Table.from_pylist([{"doc_id": 1, "reason": "x", "detail": "y"}], UNFIT)
    found = own_texts(store, files, unfit).column("text").to_pylist()
    assert found == ["0 2", "3 1", "3 2", "6 1", "6 2", "9 1", "9 2"]
    assert own_texts(store, files[:1], unfit).column("text").to_pylist() == ["0 2"]
    assert own_texts(store, [], unfit).num_rows == 0


def test_the_sample_is_bounded(store: Store) -> None:
    texts = ["x" * (MAX_TEXT_BYTES + 1), *(["é" * 1_000] * 400)]
    found = own_texts(store, [split(store, 0, texts, [])], UNFIT.empty_table()).column("text").to_pylist()
    assert set(found) == {texts[1]}
    assert SAMPLE_BYTES - 2_000 < sum(len(text.encode()) for text in found) <= SAMPLE_BYTES


PLAIN: dict[str, Any] = {"stages": None, "lm": None, "schedule": None, "dedup": {"exact": False, "near": False}}


def shard_bytes(made: Any) -> dict[str, bytes]:
    root = Path(made.root)
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted((root / "shards").rglob("*.arrow"))}


def test_a_run_says_who_encodes_and_its_shards_are_the_same(
    corpus: Any, run_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    quick = run_recipe(tmp_path / "quick", corpus.recipe(**PLAIN), corpus.folder)
    assert not caplog.records
    monkeypatch.setattr("pipelines.passes.encoder.compare", other_tokens)
    with caplog.at_level(logging.WARNING):
        slow = run_recipe(tmp_path / "slow", corpus.recipe(**PLAIN), corpus.folder)
    assert "tokenizers encodes, more slowly: it gives other tokens for 'x'" in caplog.text
    said = [made.inputs("write").statistics(made.passes["write"].quick)["all"] for made in (quick, slow)]
    assert said == [True, False]
    assert shard_bytes(quick) == shard_bytes(slow) != {}
    ShardSet.open(slow.root / "shards").verify()


def other_tokens(use: TokenizerUse, documents: pa.RecordBatch | None) -> Any:
    """What a child says where the libraries differ."""
    yield pa.RecordBatch.from_pylist([{"why": "it gives other tokens for 'x'"}], tokenizer_trial.VERDICT)
