"""fastokens against tokenizers, over kinds of tokeniser, scripts, added tokens and odd text."""

from __future__ import annotations

import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

from stages.quick_tokens import THREADS, QuickTokenizer
from stages.tokenizer_trial import characters

BYTE_LEVEL = functools.partial(pre_tokenizers.ByteLevel, add_prefix_space=False)
LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ADDED = [
    AddedToken("<|end|>", special=True, normalized=False),
    AddedToken("<|tool|>", normalized=False),
    AddedToken("    ", normalized=False),
    AddedToken("<mask>", special=False, lstrip=True, normalized=True),
    AddedToken("[X]", rstrip=True, normalized=False),
    AddedToken("Word", single_word=True, normalized=True),
]


def split_by(pattern: str) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), BYTE_LEVEL(use_regex=False)])


PRE_TOKENIZERS = {
    "gpt-2": BYTE_LEVEL(),
    "gpt-2 with a space before": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "llama 3": split_by(LLAMA_3),
    "qwen 2": split_by(LLAMA_3.replace("{1,3}", "")),
    "digits": pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), BYTE_LEVEL()]),
    "none": BYTE_LEVEL(use_regex=False),
}
NORMALIZERS: dict[str, Any] = {"plain": None, "NFC": normalizers.NFC(), "lower case": normalizers.Lowercase()}
ODD = [
    "<|end|>",
    "<|tool|>",
    "    ",
    "<mask>",
    " <mask> ",
    "[X]",
    "[X]  ",
    "Word",
    "Words",
    "<|en",
    "d|>",
    "é",
    "Straße",
    "İI",
    "ﬁ",
    "東京",
    "สวัสดี",
    "مرحبا",
    "नमस्ते",
    "🇯🇵👩\u200d👩\u200d👧",
    "\u200b",
    "\xa0",
    "\ufeff",
    "\x00",
    "\r\n",
    "'S",
    "1234567",
    "٣٤",
    "Ⅷ",
    "\u180e",
    "\u2028",
    "\ue000",
    "\U000e0001",
    "don't we'LL",
]
PIECES = st.sampled_from([*ODD, "a" * 300, " " * 70])
TEXTS = st.lists(PIECES | st.text(max_size=12), max_size=12).map("".join)


@functools.cache
def vocabulary() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = BYTE_LEVEL()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False)
    words = ["the mill and the wheel's Words", "1234 1999", "東京 東京都", "café naïve", "    if x:\n        y"]
    tokenizer.train_from_iterator([f"{word} {word}" for word in words * 3], trainer)
    return str(tokenizer.to_str())


@functools.cache
def both(pre_tokenizer: str, normalizer: str, *, added: bool = True) -> tuple[Any, QuickTokenizer]:
    tokenizer: Any = Tokenizer.from_str(vocabulary())
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre_tokenizer]
    if NORMALIZERS[normalizer] is not None:
        tokenizer.normalizer = NORMALIZERS[normalizer]
    for token in ADDED if added else ():
        tokenizer.add_special_tokens([token]) if token.special else tokenizer.add_tokens([token])
    tokenizer.encode_special_tokens = True
    quick = QuickTokenizer.load(tokenizer.to_str())
    assert isinstance(quick, QuickTokenizer), quick
    return tokenizer, quick


def right(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def found(quick: QuickTokenizer, texts: list[str]) -> list[list[int]]:
    values, offsets = quick.encode(texts)
    assert (values.dtype, offsets.dtype, offsets[0], offsets[-1]) == (np.uint32, np.int64, 0, len(values))
    return [values[start:end].tolist() for start, end in itertools.pairwise(offsets)]


@pytest.mark.parametrize("normalizer", NORMALIZERS)
@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
@settings(deadline=None, max_examples=25)
@given(texts=st.lists(TEXTS, max_size=4))
def test_ids_are_those_of_tokenizers(pre_tokenizer: str, normalizer: str, texts: list[str]) -> None:
    tokenizer, quick = both(pre_tokenizer, normalizer)
    assert found(quick, texts) == right(tokenizer, texts)


@pytest.mark.parametrize("pre_tokenizer", PRE_TOKENIZERS)
def test_every_kind_of_character_gives_the_ids_of_tokenizers(pre_tokenizer: str) -> None:
    tokenizer, quick = both(pre_tokenizer, "plain", added=False)
    texts = characters()[::5]
    assert found(quick, texts) == right(tokenizer, texts)


@pytest.mark.parametrize(
    "model", [models.WordLevel({"a": 0, "?": 1}, unk_token="?"), models.Unigram([("a", 0.0)], 0, False)]
)
def test_what_it_does_not_take_is_said(model: Any) -> None:
    assert "unsupported model" in str(QuickTokenizer.load(Tokenizer(model).to_str()))
    assert isinstance(QuickTokenizer.load("{}"), str)


def test_ids_do_not_depend_on_threads_nor_on_what_was_encoded_before(tmp_path: Path) -> None:
    _, quick = both("gpt-2", "plain")
    texts = [f"the mill number {number} and {chr(97 + number % 26) * 9}" for number in range(300)]
    first = found(quick, texts)
    assert found(quick, texts[::-1]) == first[::-1]
    (tmp_path / "tokenizer.json").write_text(both("gpt-2", "plain")[0].to_str(), encoding="utf-8")
    (tmp_path / "texts.json").write_text(json.dumps(texts), encoding="utf-8")
    code = (
        "import json, sys, pathlib; from stages.quick_tokens import QuickTokenizer;"
        "folder = pathlib.Path(sys.argv[1]);"
        "quick = QuickTokenizer((folder / 'tokenizer.json').read_text('utf-8'));"
        "values, offsets = quick.encode(json.loads((folder / 'texts.json').read_text('utf-8')));"
        "print(json.dumps([values.tolist(), offsets.tolist()]))"
    )
    environment = {**os.environ, THREADS: "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, stdout=subprocess.PIPE, check=True
    )
    values, offsets = json.loads(done.stdout)
    assert [values[start:end] for start, end in itertools.pairwise(offsets)] == first


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed on Linux only")
def test_it_starts_no_thread(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(both("llama 3", "NFC")[0].to_str(), encoding="utf-8")
    code = (
        "import os, pathlib, sys; from stages.quick_tokens import QuickTokenizer;"
        "quick = QuickTokenizer(pathlib.Path(sys.argv[1]).read_text('utf-8'));"
        "before = len(os.listdir('/proc/self/task'));"
        "quick.encode(['the mill and the wheel, 1234 ' * 20_000] * 8);"
        "print(before, len(os.listdir('/proc/self/task')))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop(THREADS, None)
    command = [sys.executable, "-c", code, str(tmp_path / "tokenizer.json")]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    before, after = done.stdout.split()
    assert before == after
