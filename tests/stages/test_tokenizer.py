from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from shards.errors import UserError
from stages.tokenizer import BYTE_SYMBOLS, Encoder, fit_bpe, load_encoder

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


def saved(folder: Path, text: str) -> Encoder:
    path = folder / "tokenizer.json"
    path.write_text(text, encoding="utf-8")
    return Encoder(str(path))


def decoded(fitted: str, ids: list[int]) -> str:
    return str(Tokenizer.from_str(fitted).decode(ids, skip_special_tokens=False))


def test_the_fit_does_not_depend_on_the_order_of_documents(fitted: str) -> None:
    for seed in range(3):
        shuffled = TEXTS.copy()
        random.Random(seed).shuffle(shuffled)
        assert fit_bpe(iter(shuffled), VOCABULARY, END) == fitted


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
    values, offsets = encoder.encode(texts)
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
    values, offsets = encoder.encode(TEXTS[:3])
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
    values, _ = saved(tmp_path, json.dumps(value)).encode(["abc"])
    assert VOCABULARY - 1 not in values


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"not json", b"\xff\xfe\x00", b'{"model": {"type": "BPE"}}'])
def test_a_file_that_is_no_tokenizer_is_the_users_to_mend(tmp_path: Path, content: bytes) -> None:
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
    assert load_encoder(path) is load_encoder(str(path))


def test_no_documents_give_no_tokens(encoder: Encoder) -> None:
    values, offsets = encoder.encode([])
    assert (len(values), offsets.tolist()) == (0, [0])
    values, offsets = encoder.encode(["", ""])
    assert (len(values), offsets.tolist()) == (0, [0, 0, 0])
