"""What a folder of token shards holds: the ``manifest.json`` that is written beside them, last of all."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final, Literal

import pydantic

from shards.errors import IncompleteError
from shards.writer import token_dtype

CATALOG_NAME: Final = "manifest.json"

Subset = Literal["train", "held_out"]
"""``held_out`` documents are set apart when shards are written, and never served to training."""

SUBSETS: Final[tuple[Subset, ...]] = ("train", "held_out")


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class ShardEntry(_Model):
    """One shard: its two files, as paths relative to the manifest, and what they must hold."""

    tokens: str
    documents: str
    rows: int = pydantic.Field(ge=0)
    token_count: int = pydantic.Field(ge=0)
    tokens_bytes: int = pydantic.Field(ge=0)
    documents_bytes: int = pydantic.Field(ge=0)
    tokens_sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")
    documents_sha256: str = pydantic.Field(pattern=r"^[0-9a-f]{64}$")


class DomainShards(_Model):
    """The shards of one domain, in order."""

    train: tuple[ShardEntry, ...] = ()
    held_out: tuple[ShardEntry, ...] = ()

    def entries(self, subset: Subset) -> tuple[ShardEntry, ...]:
        """Return the shards of one subset."""
        return self.train if subset == "train" else self.held_out


class ShardCatalog(_Model):
    """Every shard of a run, by domain and subset."""

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

    def tokens_per_domain(self, subset: Subset = "train") -> dict[str, int]:
        """Return the number of tokens in each domain, end-of-text tokens included, sorted by name."""
        return {
            name: sum(entry.token_count for entry in shards.entries(subset))
            for name, shards in sorted(self.domains.items())
        }

    def to_json(self) -> str:
        """Return the text of the manifest: the same bytes for the same catalogue."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest's text, in hex; the manifest holds the checksum of every shard."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> ShardCatalog:
        """Read the manifest of a folder of shards.

        Raises:
            IncompleteError: if it is missing, or not a manifest of this format.
        """
        path = folder / CATALOG_NAME
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            raise IncompleteError(
                f"the shards have no {CATALOG_NAME}, so they were never finished",
                place=str(folder),
                remedy="Run the recipe again: it resumes where it stopped",
            ) from None
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise IncompleteError(
                f"{CATALOG_NAME} is not a manifest of shards: {where + ': ' if where else ''}{first['msg']}",
                place=str(path),
                remedy="Run the recipe again into a fresh folder",
            ) from None
