from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from shards.errors import UserError
from stages import failing
from stages.failing import STAGE_ERROR, Failure
from stages.tokenizer import (
    BYTE_SYMBOLS,
    ENDS_INSIDE,
    Encoded,
    Encoder,
    TokenizerUse,
    fit_bpe,
    joined_tokens,
    load_encoder,
    untrainable,
)

END = "<|endoftext|>"
VOCABULARY = 340
TEXTS = [
    f"The {word} of {number} rivers, and {word}s again: naïve café 東京 {number}"
    for number in range(40)
    for word in ("weir", "race", "mill", "sluice")
] + ["x" * 50, "\n\n\t  \n", "a<|endoftext|>b", "\u0000\ufffd\U0001f600"]


@pytest.fixture(scope="module")
def fitted() -> str:
    return fit_bpe(TEXTS, VOCABULARY, END)


@pytest.fixture(scope="module")
def encoder(fitted: str, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(fitted, encoding="utf-8")
    return Encoder(str(path))


def saved(folder: Path, text: str, *, quick: bool = True) -> Encoder:
    path = folder / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    return Encoder(str(path), quick=quick)


def decoded(fitted: str, ids: list[int]) -> str:
    return str(Tokenizer.from_str(fitted).decode(ids, skip_special_tokens=False))


def test_the_fit_does_not_depend_on_the_order_of_documents(fitted: str) -> None:
    for seed in range(3):
        shuffled = TEXTS.copy()
        random.Random(seed).shuffle(shuffled)
        assert fit_bpe(iter(shuffled), VOCABULARY, END) == fitted


@pytest.mark.integration
def test_the_fit_does_not_depend_on_threads(fitted: str, tmp_path: Path) -> None:
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS), encoding="utf-8")
    code = (
        "import json, pathlib, sys; from stages.tokenizer import fit_bpe;"
        "texts = json.loads(pathlib.Path(sys.argv[1]).read_text('utf-8'));"
        f"sys.stdout.buffer.write(fit_bpe(texts, {VOCABULARY}, {END!r}).encode())"
    )
    for settings_ in ({"RAYON_NUM_THREADS": "1"}, {"RAYON_NUM_THREADS": "5", "TOKENIZERS_PARALLELISM": "true"}):
        environment = {**os.environ, **settings_, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-c", code, str(tmp_path / "texts.json")]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        assert done.stdout.decode() == fitted


def test_the_vocabulary_is_bytes_merges_and_the_end_last(fitted: str, encoder: Encoder) -> None:
    vocabulary = json.loads(fitted)["model"]["vocab"]
    assert encoder.vocab_size == VOCABULARY == len(vocabulary) + 1
    assert sorted(vocabulary.values()) == list(range(VOCABULARY - 1))
    assert encoder.token_id(END, "test") == VOCABULARY - 1
    assert {name for name, at in vocabulary.items() if at < BYTE_SYMBOLS} == set(pre_tokenizers.ByteLevel.alphabet())


def test_a_small_corpus_gives_a_small_vocabulary(tmp_path: Path) -> None:
    encoder = saved(tmp_path, fit_bpe(["ab ab"], 5_000, END))
    assert BYTE_SYMBOLS < encoder.vocab_size < 300
    assert encoder.token_id(END, "test") == encoder.vocab_size - 1


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text() | st.sampled_from([END, f"a{END}", END * 2, "", "<|endof", "text|>"]), max_size=5))
def test_tokens_decode_back_and_text_never_gives_the_control_token(
    fitted: str, encoder: Encoder, texts: list[str]
) -> None:
    values, offsets, failures = encoder.encode(texts)
    assert not failures
    assert (values.dtype, offsets.dtype, offsets.shape) == (np.uint32, np.int64, (len(texts) + 1,))
    assert offsets[-1] == len(values)
    assert encoder.token_id(END, "test") not in values
    for text, start, end in zip(texts, offsets[:-1], offsets[1:], strict=True):
        assert decoded(fitted, values[start:end].tolist()) == text


def test_an_end_of_text_that_texts_give_themselves_is_refused() -> None:
    with pytest.raises(UserError, match="'END' is an ordinary token"):
        fit_bpe(["END END END the END"] * 5, 300, "END")
    with pytest.raises(UserError, match="'a' is an ordinary token"):
        fit_bpe(["text"], 300, "a")


def test_truncation_and_padding_of_the_file_change_no_document(tmp_path: Path, fitted: str) -> None:
    value: dict[str, Any] = json.loads(fitted)
    value["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    value["padding"] = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "!",
    }
    encoder = saved(tmp_path, json.dumps(value))
    values, offsets, _ = encoder.encode(TEXTS[:3])
    for text, start, end in zip(TEXTS, offsets[:-1], offsets[1:], strict=False):
        assert decoded(fitted, values[start:end].tolist()) == text


def test_a_post_processor_adds_nothing(tmp_path: Path, fitted: str) -> None:
    value: dict[str, Any] = json.loads(fitted)
    end = {"SpecialToken": {"id": END, "type_id": 0}}
    value["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, end],
        "pair": [],
        "special_tokens": {END: {"id": END, "ids": [VOCABULARY - 1], "tokens": [END]}},
    }
    values, *_ = saved(tmp_path, json.dumps(value)).encode(["abc"])
    assert VOCABULARY - 1 not in values


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"not json", b"\xff\xfe\x00", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_no_tokenizer_is_the_users_to_fix(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a tokenizer") as caught:
        Encoder(str(path))
    assert caught.value.place == str(path)


def test_a_tokenizer_without_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no tokens"):
        saved(tmp_path, Tokenizer(models.BPE()).to_str())


def test_an_unknown_end_of_text_names_the_remedy(encoder: Encoder) -> None:
    with pytest.raises(UserError, match=r"no token '</s>'.*end_of_text"):
        encoder.token_id("</s>", "recipe, key tokenizer.end_of_text")


def test_is_loaded_once_per_process(tmp_path: Path, fitted: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(fitted, encoding="utf-8")
    uses = [TokenizerUse(str(path)), TokenizerUse(str(path)), TokenizerUse(str(path), quick=False)]
    one, other, slow = map(load_encoder, uses)
    assert one is other
    assert one is not slow


def test_no_documents_give_no_tokens(encoder: Encoder) -> None:
    values, offsets, failures = encoder.encode([])
    assert (len(values), offsets.tolist(), failures) == (0, [0], {})
    values, offsets, failures = encoder.encode(["", ""])
    assert (len(values), offsets.tolist(), failures) == (0, [0, 0, 0], {})


LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Backtracks without end on a run of this letter, so a run of 24 meets the limit that spaces meet by the million.
BACKTRACKING = r"(?:q|q)*!|."
GUILTY = "q" * 24
PANIC = Failure(STAGE_ERROR, "PanicException: Onig: Regex search error: retry-limit-in-match over")


def split_by(pattern: str) -> Any:
    """The pre-tokeniser of Llama 3 with another pattern."""
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@pytest.fixture(scope="module")
def fragile(fitted: str, tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    """An encoder that panics on ``GUILTY``."""
    tokenizer = Tokenizer.from_str(fitted)
    tokenizer.pre_tokenizer = split_by(BACKTRACKING)
    return saved(tmp_path_factory.mktemp("fragile"), tokenizer.to_str())


@pytest.fixture
def slow_fragile(fitted: str, tmp_path: Path) -> Encoder:
    """``fragile`` without fastokens, whose limit is an error and no panic."""
    tokenizer = Tokenizer.from_str(fitted)
    tokenizer.pre_tokenizer = split_by(BACKTRACKING)
    return saved(tmp_path, tokenizer.to_str(), quick=False)


@pytest.mark.integration
def test_twelve_million_spaces_under_the_pattern_of_llama_3(tmp_path: Path, fitted: str) -> None:
    tokenizer = Tokenizer.from_str(fitted)
    tokenizer.pre_tokenizer = split_by(LLAMA_3)
    spaces = " " * 12_000_000
    values, offsets, failures = saved(tmp_path, tokenizer.to_str()).encode([spaces])
    assert (failures, offsets.tolist()) == ({}, [0, len(values)])
    assert decoded(fitted, values.tolist()) == spaces
    slow = Encoder(str(tmp_path / "tokenizer.json"), quick=False)
    values, offsets, failures = slow.encode([spaces])
    assert (len(values), offsets.tolist(), failures) == (0, [0, 0], {0: PANIC})
    assert not slow.encode([" " * 1_000]).failures


@settings(deadline=None, max_examples=5)
@given(
    harmless=st.lists(st.sampled_from(["a", "", "the mill", "qqq!"]), max_size=40),
    # Few of them: each costs a tenth of a second, several times.
    guilty=st.lists(st.tuples(st.integers(0, 40), st.sampled_from([GUILTY, f"a {GUILTY}"])), max_size=2),
    at=st.integers(0, 42),
)
def test_texts_that_fail_have_no_tokens_and_others_theirs_in_any_batch(
    fragile: Encoder, harmless: list[str], guilty: list[tuple[int, str]], at: int
) -> None:
    texts = harmless.copy()
    for place, text in guilty:
        texts.insert(place, text)
    whole = fragile.encode(texts)
    assert whole.failures == {row: PANIC for row, text in enumerate(texts) if GUILTY in text}
    head, tail = texts[:at], texts[at:]
    parts = joined_tokens(
        [(range(len(head)), fragile.encode(head)), (range(len(head), len(texts)), fragile.encode(tail))]
    )
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_equal(one, other)
    for row, (start, end) in enumerate(itertools.pairwise(whole.offsets)):
        alone = [] if row in whole.failures else fragile.encode([texts[row]]).values.tolist()
        assert whole.values[start:end].tolist() == alone


def test_many_panics_are_printed_once(
    slow_fragile: Encoder, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failing, "_panicked", False)
    for _ in range(2):
        assert slow_fragile.encode(["a", GUILTY, "b"]).failures == {1: PANIC}
    assert capfd.readouterr().err.count("panicked at") == 1


def test_a_text_that_is_no_unicode_is_a_failure(encoder: Encoder) -> None:
    found = encoder.encode(["a", "\ud800", "b"])
    assert list(found.failures) == [1]
    assert found.values.tolist() == [*encoder.encode(["a"]).values, *encoder.encode(["b"]).values]


def test_a_tokenizer_that_encodes_nothing_is_an_error_of_its_own(tmp_path: Path, fitted: str) -> None:
    tokenizer = Tokenizer.from_str(fitted)
    tokenizer.normalizer = normalizers.Replace("", "x")
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    encoder = Encoder(str(tmp_path / "tokenizer.json"), quick=False)
    with pytest.raises(BaseException, match="index out of bounds"):
        encoder.encode(["mill", "race"])


def test_a_text_that_only_the_quick_library_fails_on_is_encoded_by_the_other(tmp_path: Path, fitted: str) -> None:
    tokenizer = Tokenizer.from_str(fitted)
    # PCRE2 keeps a place for each letter on a stack of 32 kB, Oniguruma on the heap.
    tokenizer.pre_tokenizer = split_by(r"\A(?:a|b)+c|.")
    encoder = saved(tmp_path, tokenizer.to_str())
    assert not isinstance(encoder.quick, str)
    text = "a" * 20_000
    with pytest.raises(ValueError, match="stack limit"):
        encoder.quick.encode([text])
    found = encoder.encode(["the mill", text, ""])
    assert not found.failures
    assert found.values.tolist() == [*encoder.encode(["the mill"]).values, *tokenizer.encode(text).ids]


def test_a_text_that_gives_the_end_of_text_is_a_failure(tmp_path: Path) -> None:
    vocabulary = [("<unk>", 0.0), ("</s>", -1.0), *((letter, -9.0) for letter in "abc</s>"[:3]), ("ab", -3.0)]
    unigram = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=False))
    unigram.add_special_tokens(["</s>"])
    path = tmp_path / "tokenizer.json"
    path.write_text(unigram.to_str(), encoding="utf-8")
    encoder = Encoder(str(path), "</s>")
    assert isinstance(encoder.quick, str)
    found = encoder.encode(["ab", "ab</s>c", "c", "</s>", ""])
    assert found.failures == {1: ENDS_INSIDE, 3: ENDS_INSIDE}
    assert found.values.tolist() == [5, 4]
    assert found.offsets.tolist() == [0, 1, 1, 2, 2, 2]


def train(texts: Iterable[str], vocab_size: int) -> str:
    return fit_bpe(texts, vocab_size, END)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sampled_from(["the mill", "a mill", "", "\ud800"]), max_size=40))
def test_texts_that_fail_in_training_are_found_and_no_others(texts: list[str]) -> None:
    found = untrainable(texts, train)
    assert list(found) == [row for row, text in enumerate(texts) if text == "\ud800"]
    assert all(failure.detail.startswith("UnicodeEncodeError: ") for failure in found.values())
    fit_bpe([text for row, text in enumerate(texts) if row not in found], VOCABULARY, END)
    if found:
        with pytest.raises(UnicodeEncodeError):
            fit_bpe(texts, VOCABULARY, END)


def test_texts_that_panic_in_training_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    panicking = split_by(BACKTRACKING)

    class Panicking:
        """``ByteLevel`` with a pattern that panics, which its own does on no text that a reader would let through."""

        alphabet = staticmethod(pre_tokenizers.ByteLevel.alphabet)

        def __new__(cls, **_: Any) -> Any:
            return panicking

    monkeypatch.setattr(pre_tokenizers, "ByteLevel", Panicking)
    assert untrainable(["the mill", GUILTY, "a mill"], train) == {1: PANIC}


@pytest.mark.parametrize("error", [UserError("no document"), FileNotFoundError("gone"), KeyboardInterrupt()])
def test_what_ends_the_sample_ends_the_fit(error: BaseException) -> None:
    def ending() -> Iterator[str]:
        yield "the mill"
        raise error

    def failing_train(texts: Iterable[str], vocab_size: int) -> str:
        raise error

    with pytest.raises(type(error)):
        fit_bpe(ending(), 300, END)
    with pytest.raises(type(error)):
        untrainable(["the mill"], failing_train)


def test_training_that_fails_on_any_text_blames_none() -> None:
    def broken(texts: Iterable[str], vocab_size: int) -> str:
        raise LookupError("no model")

    with pytest.raises(LookupError):
        untrainable(["the mill", "a mill"], broken)
    assert untrainable([], broken) == {}


def test_joined_tokens_lie_one_behind_the_other() -> None:
    one = Encoded(np.array([5, 6], np.uint32), np.array([0, 0, 2]), {0: PANIC})
    found = joined_tokens([(range(2), one), (range(2, 3), PANIC), (range(3, 5), one)])
    assert (found.values.tolist(), found.offsets.tolist()) == ([5, 6, 5, 6], [0, 0, 2, 2, 2, 4])
    assert list(found.failures) == [0, 2, 3]
    assert (found.values.dtype, found.offsets.dtype) == (np.uint32, np.int64)
