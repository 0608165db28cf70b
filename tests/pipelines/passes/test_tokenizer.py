from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.beam.base import Inputs
from pipelines.inspection.funnel import report
from pipelines.passes.tokenizer import CopyTokenizer, FitTokenizer, encoder_of
from pipelines.run import Run
from shards.catalog import SUBSETS
from shards.errors import UserError
from shards.reader import ShardSet
from stages.text.hashing import below_share, splitmix64
from stages.tokenizer import fit_bpe
from tests.pipelines.beam.killers import train
from tests.pipelines.passes.test_fit_tokenizer import survivors_of

END = "<|endoftext|>"


def test_the_fit_is_of_the_survivors_whatever_splits_they_lie_in(made: Any, cut_fine: Any) -> None:
    files = [each.entry("tokenizer", "tokenizer") for each in (made, cut_fine)]
    assert files[0].sha256 == files[1].sha256
    texts = [row["text"] for row in survivors_of(made)]
    assert made.run.store.read_bytes(files[0].path).decode() == fit_bpe(reversed(texts), 400, "<|endoftext|>")


def test_the_encoder_of_a_run(made: Any) -> None:
    encoder = encoder_of(made.run.root, made.entry("tokenizer", "tokenizer"), END)
    end = encoder.token_id("<|endoftext|>", "here")
    assert (encoder.vocab_size, end) == (400, 399)
    assert end not in encoder.encode(["text with <|endoftext|> in it"])[0]


def test_a_sample_is_bounded_though_the_run_is_a_sample_itself(corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    plain = {"stages": None, "lm": None, "schedule": None, "dedup": {"exact": False, "near": False}}
    table = corpus.recipe(sample=0.5, tokenizer={"vocab_size": 300, "sample_bytes": 10_000}, **plain)
    made = run_recipe(tmp_path / "out", table, corpus.folder)
    total = sum(row["text_bytes"] for row in made.verdicts() if row["dropped_by"] is None)
    assert total > 20_000
    work = made.passes["tokenizer"]
    assert isinstance(work, FitTokenizer)
    batches = work.sample(made.run.root, made.inputs("tokenizer")).batches()
    texts = [text for batch in batches for text in batch.column("text").to_pylist()]
    assert 4_000 < sum(len(text.encode()) for text in texts) < 16_000
    fitted = made.run.store.read_bytes(made.entry("tokenizer", "tokenizer").path).decode()
    assert fitted == fit_bpe(texts, 300, "<|endoftext|>")


def test_hashes_of_the_two_samples_are_independent() -> None:
    keys = np.arange(100_000, dtype=np.uint64)
    once, twice = below_share(splitmix64(keys), 0.1), below_share(splitmix64(splitmix64(keys)), 0.1)
    assert 800 < int((once & twice).sum()) < 1_200


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "file is missing"),
        (b"\xff\xfe", "not a tokenizer.json"),
        (b"{}", "not a tokenizer.json"),
        (fit_bpe(["other"], 300, "</s>").encode(), "no token '<|endoftext|>'"),
    ],
    ids=["missing", "binary", "other JSON", "another end of text"],
)
def test_a_wrong_tokenizer_is_refused_before_any_document_is_read(
    corpus: Any, run_recipe: Any, tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "tokenizer.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        run_recipe(tmp_path / "out", corpus.recipe(tokenizer={"file": str(path)}), corpus.folder)
    assert message in str(caught.value)
    assert not (tmp_path / "out" / "judge").exists()


def test_a_named_tokenizer_is_published_byte_for_byte_and_survivors_do_not_matter(
    made: Any, corpus: Any, run_recipe: Any, tmp_path: Path
) -> None:
    fitted = made.entry("tokenizer", "tokenizer")
    text = made.run.store.read_bytes(fitted.path)
    path = tmp_path / "mine.json"
    path.write_bytes(text.replace(b"\n", b"\r\n"))
    plain = {"stages": None, "lm": None, "schedule": None, "dedup": {"exact": False, "near": False}}
    own = run_recipe(tmp_path / "out", corpus.recipe(tokenizer={"file": str(path)}, **plain), corpus.folder)
    file = own.entry("tokenizer", "tokenizer")
    assert own.run.store.read_bytes(file.path) == path.read_bytes()
    encoded = [
        encoder_of(each.run.root, each.entry("tokenizer", "tokenizer"), "<|endoftext|>").encode(["a b"])
        for each in (own, made)
    ]
    assert encoded[0][0].tolist() == encoded[1][0].tolist()
    # A run of which no pass is known yet has this digest already: it reads nothing of the run.
    work = own.passes["tokenizer"]
    assert isinstance(work, CopyTokenizer)
    assert work.inputs == ()
    assert work.digest(Inputs(Run(own.workspace, "another"), ())) == own.run.digests["tokenizer"]
    assert isinstance(made.passes["tokenizer"], FitTokenizer)


def test_documents_that_kill_the_fit_have_failed_in_the_tokenizer_and_all_others_are_served(
    corpus: Any, run_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(corpus.folder, tmp_path / "in"))
    texts = {end: f"The mill and the weir !{end}" for end in ("segv", "panic")}
    lines = [json.dumps({"url": f"http://deadly.example/{end}", "text": text}) for end, text in texts.items()]
    (folder / "web-9.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr("pipelines.passes.tokenizer.fit_bpe", train)
    plain = {"stages": None, "lm": None, "schedule": None, "dedup": {"exact": False, "near": False}}
    made = run_recipe(tmp_path / "out", corpus.recipe(**plain), folder)
    rows = made.verdicts()
    failed = {row["url"]: row for row in rows if row["dropped_by"] == "tokenizer"}
    found = {url.rpartition("/")[2]: (row["reason"], row["detail"], row["failed"]) for url, row in failed.items()}
    assert found == {
        "segv": ("killed_process", "SIGSEGV", True),
        "panic": ("stage_error", "PanicError: met", True),
    }
    assert {made.run.plan.path_of(row["source_index"]) for row in failed.values()} == {"web-9.jsonl"}
    assert [row["offset"] for row in failed.values()] == [0, len(lines[0]) + 1]
    funnel = report(made.run).stages
    assert (funnel[-1].name, funnel[-1].failures) == ("tokenizer", {"killed_process": 1, "stage_error": 1})
    shards = ShardSet.open(made.root / "shards")
    served = sum(shards.documents(domain, subset) for domain in shards.catalog.domains for subset in SUBSETS)
    assert funnel[-1].kept == served == sum(row["dropped_by"] is None for row in rows)
    left_out = {row["doc_id"] for row in failed.values()}
    fitted_on = [row["text"] for row in survivors_of(made) if row["doc_id"] not in left_out]
    entry = made.entry("tokenizer", "tokenizer")
    assert made.run.store.read_bytes(entry.path).decode() == fit_bpe(fitted_on, 400, "<|endoftext|>")
