"""What a folder of token shards holds: the ``manifest.json`` that is written beside them, last of all.

The manifest itself is small. For each domain and subset it names two files with their checksums: the list of its
shards (``shards.listing``) and the index of their documents' lengths (``shards.length_index``). So a catalogue of
30,000 shards is opened without parsing 30,000 entries.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final, Literal

import pydantic

from shards.errors import IncompleteError
from shards.length_index import FORMAT as LENGTHS_FORMAT
from shards.writer import DOCUMENTS_FORMAT, TOKENS_FORMAT, token_dtype

CATALOG_NAME: Final = "manifest.json"
INDEX_FOLDER: Final = "index"
"""Folder beside the manifest that holds the lists of shards and the indices of lengths."""

FORMAT: Final = 2

FORMATS: Final = {"tokens": TOKENS_FORMAT, "documents": DOCUMENTS_FORMAT, "lengths": LENGTHS_FORMAT}
"""Formats of the files that a manifest leads to."""

Subset = Literal["train", "held_out"]
"""``held_out`` documents are set apart when shards are written, and never served to training."""

SUBSETS: Final[tuple[Subset, ...]] = ("train", "held_out")

_Digest = pydantic.Field(pattern=r"^[0-9a-f]{64}$")


class _Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class ShardEntry(_Model):
    """One shard: its two files, as paths relative to the manifest, and what they must hold.

    Attributes:
        tokens: the file of tokens; ``documents`` is its companion.
        rows: documents; ``token_count`` is their tokens, end-of-text tokens included.
        values_at: where the first token lies in the file of tokens, in bytes.
        lengths_sha256: see ``ShardFiles``.
    """

    tokens: str
    documents: str
    rows: int = pydantic.Field(ge=0)
    token_count: int = pydantic.Field(ge=0)
    tokens_bytes: int = pydantic.Field(ge=0)
    documents_bytes: int = pydantic.Field(ge=0)
    values_at: int = pydantic.Field(ge=0)
    tokens_sha256: str = _Digest
    documents_sha256: str = _Digest
    lengths_sha256: str = _Digest


class IndexFile(_Model):
    """A file that the manifest names: its path relative to the manifest, its size, and its checksum."""

    path: str
    size: int = pydantic.Field(ge=0)
    sha256: str = _Digest


class SubsetShards(_Model):
    """The shards of one domain and subset: how much they hold, and where they are listed."""

    shards: int = pydantic.Field(ge=0)
    documents: int = pydantic.Field(ge=0)
    tokens: int = pydantic.Field(ge=0)
    listing: IndexFile
    lengths: IndexFile


class DomainShards(_Model):
    """The shards of one domain; a subset without documents is None."""

    train: SubsetShards | None = None
    held_out: SubsetShards | None = None

    def of(self, subset: Subset) -> SubsetShards | None:
        """Return the shards of one subset."""
        return self.train if subset == "train" else self.held_out


class ShardCatalog(_Model):
    """Every shard of a run, by domain and subset."""

    format_version: Literal[2] = FORMAT
    formats: dict[str, str] = FORMATS
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
        found = {name: shards.of(subset) for name, shards in sorted(self.domains.items())}
        return {name: 0 if shards is None else shards.tokens for name, shards in found.items()}

    def to_json(self) -> str:
        """Return the text of the manifest: the same bytes for the same catalogue."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the manifest's text, in hex; through the lists it covers the checksum of every shard."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def load(cls, folder: Path) -> ShardCatalog:
        """Read the manifest of a folder of shards.

        Raises:
            IncompleteError: if it is missing, or not a manifest of this format.
        """
        path = folder / CATALOG_NAME
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise IncompleteError(
                f"the shards have no {CATALOG_NAME}, so they were never finished",
                place=str(folder),
                remedy="Run the recipe again: it resumes where it stopped",
            ) from None
        _check_formats(path, text)
        try:
            return cls.model_validate_json(text)
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise IncompleteError(
                f"{CATALOG_NAME} is not a manifest of shards: {where + ': ' if where else ''}{first['msg']}",
                place=str(path),
                remedy="Run the recipe again into a fresh folder",
            ) from None


def _check_formats(path: Path, text: bytes) -> None:
    """Check the formats before anything else: in another one, other keys are no mistake."""
    try:
        value = json.loads(text)
    except ValueError:
        return
    said = value if isinstance(value, dict) else {}
    formats = said.get("formats", FORMATS)
    found: list[tuple[str, Any, Any]] = [("manifest", said.get("format_version"), FORMAT)]
    found += [(name, formats.get(name), ours) for name, ours in FORMATS.items()] if isinstance(formats, dict) else []
    for name, theirs, ours in found:
        if theirs is not None and theirs != ours:
            raise IncompleteError(
                f"the shards have format {theirs} of {name}, and this version of headrace reads {ours}",
                place=str(path),
                remedy="Run the recipe again: it writes the shards in the new format",
            )
