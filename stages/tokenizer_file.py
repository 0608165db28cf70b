"""What a ``tokenizer.json`` says of itself, looked at before it meets a document.

Whatever would lose text in silence, end a run in its middle, or make tokens random is refused or put right here: a file
without a token for what it does not know, an end-of-text token that is found inside ordinary text, BPE dropout,
truncation and padding.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from shards.errors import UserError

DEFAULT_END_OF_TEXT: Final = "<|endoftext|>"

_FALLBACK_TOKENS: Final = tuple(f"<0x{byte:02X}>" for byte in range(256))


class TokenizerFile(NamedTuple):
    """A tokeniser as documents are to meet it.

    Attributes:
        tokenizer: loaded by ``tokenizers``, whose tokens are the right ones.
        text: the same tokeniser's JSON, for another library.
        digest: SHA-256 of the file, in hexadecimal.
    """

    tokenizer: Any
    text: str
    digest: str


def read_tokenizer(path: str, end_of_text: str) -> TokenizerFile:
    """Return the tokeniser of a file, with nothing in it that would cut, fill or vary a document's tokens.

    ``end_of_text`` becomes a special token if it is an added token of another kind: only a special one is never found
    inside text.

    Raises:
        UserError: if it is no tokeniser, has no tokens, or has none for what it does not know.
    """
    from tokenizers import Tokenizer

    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8")
        tokenizer: Any = Tokenizer.from_str(text)
        config: dict[str, Any] = json.loads(text)
        if _put_right(config, end_of_text):
            text = json.dumps(config, ensure_ascii=False)
            tokenizer = Tokenizer.from_str(text)
    except Exception as error:
        raise UserError(
            f"not a tokenizer.json: {error}", place=path, remedy="Name a Hugging Face tokenizer.json file"
        ) from error
    # Otherwise "<|endoftext|>" written in a page would become the control token.
    tokenizer.encode_special_tokens = True
    vocabulary = tokenizer.get_vocab(with_added_tokens=False)
    if not vocabulary:
        raise UserError("the tokeniser has no tokens", place=path, remedy="Name a trained tokenizer.json file")
    _require_tokens_for_all(config, vocabulary, type(tokenizer.model).__name__, path)
    return TokenizerFile(tokenizer, text, hashlib.sha256(data).hexdigest())


def _put_right(config: dict[str, Any], end_of_text: str) -> bool:
    """Change what would change a document in silence, and return whether anything was."""
    changed = False
    # A file may carry these from its model's training.
    for place, name in ((config, "truncation"), (config, "padding"), (config["model"], "dropout")):
        if place.get(name) is not None:
            place[name] = None
            changed = True
    for token in config.get("added_tokens") or ():
        if token["content"] == end_of_text and not token["special"]:
            token["special"] = True
            changed = True
    return changed


def _require_tokens_for_all(config: dict[str, Any], vocabulary: Collection[str], kind: str, path: str) -> None:
    """Refuse a model that has neither an unknown token nor a token for every byte."""
    model = config["model"]
    has_unknown = model.get("unk_id") is not None if kind == "Unigram" else model.get("unk_token") in vocabulary
    takes_bytes = kind in ("BPE", "Unigram")
    if has_unknown or (takes_bytes and _has_every_byte(config, vocabulary)):
        return
    consequence = "characters that it does not know would vanish" if kind == "BPE" else "unknown words have no token"
    raise UserError(
        f"the tokeniser ({kind}) has no unknown token in its vocabulary, and no token for every byte: {consequence}",
        place=path,
        remedy="Fit it with a byte-level alphabet or byte fallback, or add its unknown token to the vocabulary",
    )


def _has_every_byte(config: dict[str, Any], vocabulary: Collection[str]) -> bool:
    from tokenizers import pre_tokenizers

    if config["model"].get("byte_fallback") and all(token in vocabulary for token in _FALLBACK_TOKENS):
        return True
    steps = [*_kinds(config.get("normalizer")), *_kinds(config.get("pre_tokenizer"))]
    return "ByteLevel" in steps and all(symbol in vocabulary for symbol in pre_tokenizers.ByteLevel.alphabet())


def _kinds(step: dict[str, Any] | None) -> Iterator[str]:
    """Yield the type of a normaliser or pre-tokeniser, and of those inside it."""
    if step:
        yield step["type"]
        for inner in (*step.get("normalizers", ()), *step.get("pretokenizers", ())):
            yield from _kinds(inner)
