from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from shards.errors import UserError
from stages.tokenizer import Encoder, TokenizerUse, fit_bpe
from stages.tokenizer_trial import PLAIN, characters, compare, difference, trial

END = "<|endoftext|>"


@pytest.fixture(autouse=True)
def unlimited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit is for a process of its own: ``pipelines.passes.encoder`` starts one."""
    monkeypatch.setattr("stages.tokenizer_trial._limit", lambda seconds: None)


@pytest.fixture(scope="module")
def fitted() -> str:
    return fit_bpe([PLAIN], 400, END)


def saved(folder: Path, tokenizer: Any) -> TokenizerUse:
    path = folder / "tokenizer.json"
    path.write_text(tokenizer if isinstance(tokenizer, str) else tokenizer.to_str(), encoding="utf-8")
    return TokenizerUse(str(path))


def test_a_good_tokenizer_passes(tmp_path: Path, fitted: str) -> None:
    (answer,) = trial((saved(tmp_path, fitted), 9), None)
    assert answer.num_rows == 0


def test_a_tokenizer_that_fails_on_plain_text_is_refused(tmp_path: Path, fitted: str) -> None:
    tokenizer = Tokenizer.from_str(fitted)
    tokenizer.normalizer = normalizers.Replace("", "x")
    with pytest.raises(UserError, match="fails on a plain text: PanicException"):
        list(trial((saved(tmp_path, tokenizer), 9), None))


@pytest.mark.parametrize("end", ["the", "."])
def test_an_end_of_text_that_plain_text_gives_is_refused(tmp_path: Path, end: str) -> None:
    tokenizer = Tokenizer(models.WordLevel({"the": 0, ".": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(UserError, match="is an ordinary token of this tokeniser"):
        list(trial((saved(tmp_path, tokenizer)._replace(end_of_text=end), 9), None))
    with pytest.raises(UserError, match="has no token"):
        list(trial((saved(tmp_path, tokenizer), 9), None))


def test_the_same_tokens_are_no_difference(tmp_path: Path, fitted: str) -> None:
    (answer,) = compare(saved(tmp_path, fitted), pa.record_batch({"text": [PLAIN, "", "a <|endoftext|> b"]}))
    assert answer.column("why").to_pylist() == [None]


def test_a_pattern_that_pcre2_reads_otherwise_is_found_by_the_characters(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_str(fit_bpe(["1\u180e2 \u180e\u180e's"] * 9, 400, END))
    split = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]+|\s+"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    # U+180E was white space until Unicode 6.3, and still is to one of the libraries.
    (answer,) = compare(saved(tmp_path, tokenizer), None)
    assert "other tokens for" in answer.column("why")[0].as_py()


def test_a_model_that_it_does_not_take_is_a_difference(tmp_path: Path) -> None:
    use = saved(tmp_path, Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?")))
    (answer,) = compare(use, None)
    assert "unsupported model type: WordLevel" in answer.column("why")[0].as_py()


def test_other_tokens_for_one_document_are_a_difference_and_failures_of_both_are_none(
    tmp_path: Path, fitted: str
) -> None:
    own = Encoder(*saved(tmp_path, fitted))
    config = json.loads(fitted)
    config["model"]["merges"].pop()
    (tmp_path / "other").mkdir()
    other = Encoder(*saved(tmp_path / "other", json.dumps(config)))
    texts = ["x", "\ud800", "", PLAIN]
    assert difference(own, own, texts) is None
    assert "other tokens for" in str(difference(own, other, texts))
    assert difference(own, other, texts[:3]) is None


def test_the_characters_cover_every_block_of_the_first_plane_that_has_words() -> None:
    said = set("".join(characters()))
    assert {"\u180e", "\u0085", "\u200b", "\u3042", "\u0e01", "\U0001f30a", "é", "\x00"} <= said
    assert sum(len(text) for text in characters()) < 400_000
