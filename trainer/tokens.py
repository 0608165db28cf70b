"""The run's tokeniser, where its library is installed: only for people's eyes, training reads tokens."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shards.files import hash_file


@dataclass(frozen=True)
class TextTokens:
    """Text to tokens and back."""

    tokenizer: Any

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text, without any that mark its beginning or end."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        """Return the text of tokens."""
        return str(self.tokenizer.decode(tokens))


def tokenizer_of(folder: Path, digest: str) -> TextTokens | None:
    """Return the tokeniser of a run, whose file has this sha256; None if the file or the library is not here."""
    found = [path for path in sorted((folder / "tokenizer").glob("tokenizer-*.json")) if hash_file(path)[0] == digest]
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        return None
    return TextTokens(Tokenizer.from_file(str(found[0]))) if found else None
