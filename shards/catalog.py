"""What a folder of token shards holds: the ``manifest.json`` that the write pass puts beside them, last of all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final, Literal

import pydantic

from shards.errors import IncompleteError
from shards.store import hash_file
from shards.writer import ShardFiles, token_dtype

CATALOG_NAME: Final = "manifest.json"

Split = Literal["train", "held_out"]
"""``held_out`` documents are set apart when shards are written and never served to training."""

SPLITS: Final[tuple[Split, ...]] = ("train", "held_out")


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class ShardEntry(_Model):
    """One shard: its two files, as paths relative to the manifest, with what they must hold."""

    tokens: str
    documents: str
    rows: int = pydantic.Field(ge=0)
    token_count: int = pydantic.Field(ge=0)
    tokens_bytes: int = pydantic.Field(ge=0)
    documents_bytes: int = pydantic.Field(ge=0)
    tokens_sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
    documents_sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")


class DomainShards(_Model):
    """The shards of one domain, in their order."""

    train: tuple[ShardEntry, ...] = ()
    held_out: tuple[ShardEntry, ...] = ()

    def entries(self, split: Split) -> tuple[ShardEntry, ...]:
        """Return the shards of one split."""
        return self.train if split == "train" else self.held_out


class ShardCatalog(_Model):
    """Every shard of a run, by domain and split."""

    format_version: Literal[1] = 1
    token_dtype: Literal["uint16", "uint32"]
    vocab_size: int = pydantic.Field(gt=0, le=1 << 32)
    end_of_text: int = pydantic.Field(ge=0)
    tokenizer: str
    domains: dict[str, DomainShards]

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> ShardCatalog:
        if self.end_of_text >= self.vocab_size:
            raise ValueError(f"end_of_text {self.end_of_text} is outside the vocabulary of {self.vocab_size}")
        if token_dtype(self.vocab_size).name != self.token_dtype:
            raise ValueError(f"a vocabulary of {self.vocab_size} is not stored as {self.token_dtype}")
        return self

    def tokens_per_domain(self, split: Split = "train") -> dict[str, int]:
        """Return the tokens of every domain, end-of-text tokens included, in sorted order of the names."""
        return {
            name: sum(entry.token_count for entry in shards.entries(split))
            for name, shards in sorted(self.domains.items())
        }

    def to_json(self) -> str:
        """Return the manifest's text: the same catalogue gives the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest's text, in hex, and so of every byte in the shards."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> ShardCatalog:
        """Read the manifest of a folder of shards.

        Raises:
            IncompleteError: if it is missing or not a manifest of this format.
        """
        path = folder / CATALOG_NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise IncompleteError(
                f"the shards have no {CATALOG_NAME}, so they were never finished",
                place=str(folder),
                remedy="Run the recipe again: it goes on from what is finished",
            ) from None
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise IncompleteError(
                f"{CATALOG_NAME} is not a manifest of shards: {where + ': ' if where else ''}{first['msg']}",
                place=str(path),
                remedy="Run the recipe again into a fresh folder",
            ) from None


def describe(files: ShardFiles, *, tokens: str, documents: str) -> ShardEntry:
    """Return the manifest's entry of a shard that will be published under the two relative names."""
    tokens_sha256, tokens_bytes = hash_file(files.tokens_path)
    documents_sha256, documents_bytes = hash_file(files.documents_path)
    return ShardEntry(
        tokens=tokens,
        documents=documents,
        rows=files.rows,
        token_count=files.tokens,
        tokens_bytes=tokens_bytes,
        documents_bytes=documents_bytes,
        tokens_sha256=tokens_sha256,
        documents_sha256=documents_sha256,
    )
