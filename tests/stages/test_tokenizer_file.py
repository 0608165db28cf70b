from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from shards.errors import UserError
from stages.tokenizer import Encoder
from stages.tokenizer_file import read_tokenizer

END = "<|endoftext|>"
TEXTS = [f"The teacher opened window {i} and the market began in the winter garden." for i in range(50)]


def byte_level(alphabet: list[str] | None = None) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet()) if alphabet is None else alphabet
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


def saved(folder: Path, tokenizer: Tokenizer, change: Callable[[dict[str, Any]], object] | None = None) -> str:
    config = json.loads(tokenizer.to_str())
    if change is not None:
        change(config)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return str(path)


def of_spaces(model: Any) -> Tokenizer:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


FALLBACK = {f"<0x{byte:02X}>": byte for byte in range(256)}
LOSSY = {
    "BPE of the characters that it saw": of_spaces(models.BPE({"a": 0, "b": 1}, [])),
    "BPE with an unknown token outside": of_spaces(models.BPE({"a": 0}, [], unk_token="[UNK]")),
    "BPE with a byte missing": of_spaces(
        models.BPE({t: i for t, i in FALLBACK.items() if i != 200}, [], byte_fallback=True)
    ),
    "byte level of the bytes that it saw": byte_level([]),
    "WordLevel": of_spaces(models.WordLevel({"the": 0}, unk_token="[UNK]")),
    "WordPiece": of_spaces(models.WordPiece({"the": 0}, unk_token="[UNK]")),
    "Unigram": of_spaces(models.Unigram([("a", 0.0)], None, False)),
}
WHOLE = {
    "BPE with an unknown token": of_spaces(models.BPE({"a": 0, "[UNK]": 1}, [], unk_token="[UNK]")),
    "BPE with byte fallback": of_spaces(models.BPE(FALLBACK, [], byte_fallback=True)),
    "byte level": byte_level(),
    "WordLevel": of_spaces(models.WordLevel({"the": 0, "[UNK]": 1}, unk_token="[UNK]")),
    "WordPiece": of_spaces(models.WordPiece({"the": 0, "[UNK]": 1}, unk_token="[UNK]")),
    "Unigram": of_spaces(models.Unigram([("a", 0.0), ("<unk>", 0.0)], 1, False)),
}


@pytest.mark.parametrize("tokenizer", LOSSY.values(), ids=LOSSY.keys())
def test_a_tokenizer_that_would_lose_text_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="no unknown token in its vocabulary, and no token for every byte"):
        Encoder(saved(tmp_path, tokenizer))


@pytest.mark.parametrize("tokenizer", WHOLE.values(), ids=WHOLE.keys())
def test_every_other_gives_a_token_for_every_character(tmp_path: Path, tokenizer: Tokenizer) -> None:
    encoder = Encoder(saved(tmp_path, tokenizer))
    for text in ("河", "Привет", "é", "\U0001f600", "the", "zq"):
        assert len(encoder.encode([text]).values)


@pytest.mark.parametrize("special", [True, False])
def test_the_end_of_text_is_never_found_in_text(tmp_path: Path, special: bool) -> None:
    tokenizer = byte_level()
    token = AddedToken(END, special=special)
    tokenizer.add_special_tokens([token]) if special else tokenizer.add_tokens([token])
    text = f"A page about {END} and what it does."
    for quick in (True, False):
        encoder = Encoder(saved(tmp_path, tokenizer), quick=quick)
        found = encoder.encode([text])
        assert not found.failures
        assert encoder.token_id(END, "here") not in found.values
        assert tokenizer.decode(found.values.tolist(), skip_special_tokens=False) == text


def test_other_added_tokens_stay_what_they_are(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens(["    ", AddedToken(END, special=False)])
    found = Encoder(saved(tmp_path, tokenizer)).encode(["a    b"])
    assert tokenizer.token_to_id("    ") in found.values


def test_dropout_truncation_and_padding_are_off(tmp_path: Path) -> None:
    def change(config: dict[str, Any]) -> None:
        config["model"]["dropout"] = 0.9
        config["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
        config["padding"] = {
            "strategy": {"Fixed": 64},
            "direction": "Right",
            "pad_to_multiple_of": None,
            "pad_id": 0,
            "pad_type_id": 0,
            "pad_token": "!",
        }

    expected = byte_level().encode(TEXTS[0]).ids
    path = saved(tmp_path, byte_level(), change)
    for quick in (True, False):
        assert Encoder(path, quick=quick).encode([TEXTS[0]] * 3).values.tolist() == expected * 3


def test_the_digest_is_of_the_file_and_the_text_of_what_is_used(tmp_path: Path) -> None:
    plain = saved(tmp_path, byte_level())
    before = read_tokenizer(plain, END)
    assert before.text == Path(plain).read_text("utf-8")
    after = read_tokenizer(saved(tmp_path, byte_level(), lambda config: config["model"].update(dropout=0.5)), END)
    assert before.digest != after.digest
    assert json.loads(before.text) == json.loads(after.text)
