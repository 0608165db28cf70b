"""The recipe: one TOML file for curation and training, checked as a whole before any data is read.

Unknown keys fail and name the nearest valid one. Paths in a recipe are relative to its file.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from shards.errors import UserError
from shards.schedule.settings import ScheduleSettings
from shards.training import ModelSettings, TrainSettings

DEFAULT_SPLIT_BYTES = 256 << 20
DEFAULT_SHARD_BYTES = 64 << 20
DEFAULT_COMPARED_PER_KEY = 16
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""Domains and languages name files and folders."""


class Strict(BaseModel):
    """Settings that reject unknown keys and cannot change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceSettings(Strict):
    """Input files of one kind: globs or lists, what they hold, and the licence and domain of their documents."""

    glob: str | tuple[str, ...] = ()
    list: str | tuple[str, ...] = Field(default=(), description="files that hold one path or URI a line")
    domain: str = Field(default="web", pattern=NAME)
    format: Literal["auto", "warc", "jsonl", "parquet"] = "auto"
    licence: str | None = None
    priority: int = Field(default=0, description="among duplicates, the smallest priority survives")
    text_key: str = "text"
    url_key: str = "url"
    date_key: str = "date"
    max_record_bytes: int = Field(default=16 << 20, gt=0)
    min_status: int = Field(default=200, ge=0)
    max_status: int = Field(default=299, ge=0)
    max_replaced: float = Field(default=0.05, ge=0, le=1, description="share of U+FFFD among the characters")
    truncated: Literal["keep", "drop", "fail"] = Field(default="keep", description="records that their crawler cut off")
    wrong_digest: Literal["keep", "drop", "fail"] = "keep"

    @property
    def globs(self) -> tuple[str, ...]:
        """The globs, as a tuple."""
        return (self.glob,) if isinstance(self.glob, str) else self.glob

    @property
    def lists(self) -> tuple[str, ...]:
        """The list files, as a tuple."""
        return (self.list,) if isinstance(self.list, str) else self.list

    @pydantic.model_validator(mode="after")
    def _names_files(self) -> SourceSettings:
        if not self.globs and not self.lists:
            raise ValueError("a source needs 'glob', 'list' or both")
        if self.min_status > self.max_status:
            raise ValueError(f"min_status {self.min_status} is more than max_status {self.max_status}")
        return self


class DomainRule(Strict):
    """A mixture domain given by host: the first rule that matches a document's host wins over its source's domain."""

    name: str = Field(pattern=NAME)
    hosts: tuple[str, ...] = Field(min_length=1, description="shell patterns, such as *.wikipedia.org")


class LmSettings(Strict):
    """A KenLM model of one language: a file, or reference text to fit one from."""

    language: str = Field(pattern=NAME)
    model: str | None = None
    corpus: tuple[str, ...] = ()
    order: int = Field(default=3, ge=1, le=6)

    @pydantic.model_validator(mode="after")
    def _one_origin(self) -> LmSettings:
        if (self.model is None) == (not self.corpus):
            raise ValueError(f"the model of {self.language!r} needs either 'model' or 'corpus'")
        return self


class StageUse(BaseModel):
    """A stage of the chain, and its own parameters, which the stage's class checks."""

    model_config = ConfigDict(extra="allow", frozen=True, validate_by_name=True, validate_by_alias=True)
    use: str = Field(description="a registered name, or package.module:Class")
    instance: str | None = Field(default=None, alias="as", pattern=NAME, description="its name, in a chain of several")
    origin: str | None = Field(default=None, description="the code that a saved recipe was run with; set by headrace")

    @property
    def link(self) -> str:
        """The name by which drops, scores and statistics go."""
        return _link(self.use, self.instance)

    @property
    def parameters(self) -> dict[str, Any]:
        """The stage's own parameters, as written."""
        return dict(self.__pydantic_extra__ or {})


class Preference(Strict):
    """The column of the table of verdicts by which one of several duplicates is kept; nulls come last."""

    column: str = Field(description="numbers or times, such as text_bytes, date or gopher_quality_v2.words")
    order: Literal["largest", "smallest"] = Field(description="which value is kept")


class DedupSettings(Strict):
    """Exact and near duplicates. Jaccard is over sets of word shingles."""

    exact: bool = True
    near: bool = True
    threshold: float = Field(default=0.8, gt=0.0, le=1.0, description="Jaccard from which a document is a duplicate")
    shingle_words: int = Field(default=5, ge=1)
    permutations: int = Field(default=112, ge=16, le=1024, description="length of a MinHash signature")
    prefer: Preference | None = Field(default=None, description="which duplicate survives, instead of by its priority")
    compared_per_key: int = Field(
        default=DEFAULT_COMPARED_PER_KEY,
        ge=1,
        description="kept documents of a bucket that a later one is compared with",
    )
    range_bytes: int = Field(
        default=16 << 20, ge=1 << 12, description="most bytes of keys that a shuffle holds in memory"
    )
    piece_bytes: int = Field(
        default=1 << 20, ge=1 << 4, description="about what one unit gives to another in a shuffle"
    )


class TokenizerSettings(Strict):
    """A tokeniser from a Hugging Face tokenizer.json, or a byte-level BPE fitted on survivors."""

    file: str | None = None
    vocab_size: int = Field(default=32_768, ge=300)
    sample_bytes: int = Field(default=256 << 20, gt=0, description="text that the fit reads at most")
    end_of_text: str = "<|endoftext|>"


class ShardSettings(Strict):
    """Token shards: their size, and the share of documents held out from training."""

    target_bytes: int = Field(default=DEFAULT_SHARD_BYTES, gt=0)
    held_out_share: float = Field(default=0.005, ge=0.0, lt=1.0)


class Recipe(Strict):
    """Everything that decides the output. How it is run (workers, runner) is not part of it."""

    name: str = "headrace"
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    sample: float = Field(default=1.0, gt=0.0, le=1.0, description="share of documents, by hash of doc_id")
    split_bytes: int = Field(default=DEFAULT_SPLIT_BYTES, gt=0)
    span_bytes: int = Field(
        default=DEFAULT_SPLIT_BYTES, gt=0, description="a larger file is cut, where its format allows"
    )
    leave_out_missing: bool = Field(default=False, description="go on without sources that are gone, and name them")
    sources: tuple[SourceSettings, ...] = Field(min_length=1)
    domains: tuple[DomainRule, ...] = ()
    lm: tuple[LmSettings, ...] = ()
    stages: tuple[StageUse, ...] = ()
    dedup: DedupSettings = DedupSettings()
    edits: tuple[StageUse, ...] = Field(default=(), description="stages that edit or judge what deduplication left")
    tokenizer: TokenizerSettings = TokenizerSettings()
    shards: ShardSettings = ShardSettings()
    schedule: ScheduleSettings | None = None
    model: ModelSettings | None = None
    training: TrainSettings | None = None

    @pydantic.model_validator(mode="after")
    def _training_is_whole(self) -> Recipe:
        if self.training is not None and self.schedule is None:
            raise ValueError("[training] needs a [schedule] beside it")
        return self


def load_recipe(path: str | os.PathLike[str], overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and check it, with ``KEY=VALUE`` overrides such as ``shards.held_out_share=0.01``.

    Raises:
        UserError: for a missing file, TOML that does not parse, and every key or value that is not valid.
    """
    try:
        # Some editors begin a file with a byte order mark, which TOML does not know.
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot read the recipe: {error.strerror}", place=os.fspath(path)) from error
    except UnicodeDecodeError as error:
        raise UserError("the recipe is not UTF-8 text", place=os.fspath(path)) from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"the recipe is not TOML: {error}", place=os.fspath(path)) from error
    except RecursionError:
        raise UserError(
            "the recipe's values are nested too deeply to be read", place=os.fspath(path), remedy="Write them flat"
        ) from None
    return _overridden(table, overrides, os.fspath(path))


def changed_recipe(recipe: Recipe, overrides: Sequence[str], place: str) -> Recipe:
    """Return a recipe with ``KEY=VALUE`` overrides.

    Raises:
        UserError: for every key or value that is not valid.
    """
    return _overridden(recipe.model_dump(mode="json", by_alias=True, exclude_none=True), overrides, place)


def _overridden(table: dict[str, Any], overrides: Sequence[str], place: str) -> Recipe:
    for override in overrides:
        _override(table, override)
    return parse_recipe(table, place)


def parse_recipe(table: Mapping[str, Any], place: str) -> Recipe:
    """Check a recipe's table.

    Raises:
        UserError: naming the first key that is wrong, and the nearest valid one.
    """
    try:
        return Recipe.model_validate(table)
    except pydantic.ValidationError as error:
        # A misspelt key is the cause where a required one is missing beside it.
        errors = error.errors()
        first = min(errors, key=lambda found: found["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in first["loc"])
        missing = {found["loc"] for found in errors if found["type"] == "missing"}
        raise UserError(_message(first, missing), place=f"{place}, key {where}" if where else place) from error


def wrong_value(error: Any) -> str:
    """Return what pydantic says of a wrong value in the words of a recipe."""
    given = error["input"]
    if error["type"] in ("tuple_type", "list_type") and isinstance(given, str):
        return f'this is a list: write ["{given if len(given) < 60 else "..."}"]'
    if error["type"] == "missing":
        return "this key is missing"
    shown = repr(given)
    return f"{error['msg'].removeprefix('Value error, ')} (found {shown if len(shown) < 80 else shown[:77] + '...'})"


def _message(error: Any, missing: Set[tuple[int | str, ...]]) -> str:
    if error["type"] != "extra_forbidden":
        return wrong_value(error)
    *path, key = error["loc"]

    def nearness(valid: str) -> tuple[float, bool]:
        # Of two that are equally near, the one that is required and not there.
        return difflib.SequenceMatcher(None, valid, str(key)).ratio(), (*path, valid) in missing

    near = max(_keys_at(path), key=nearness, default=None)
    return f"unknown key {str(key)!r}" + (f"; did you mean {near!r}?" if near else "")


def _keys_at(path: Sequence[int | str]) -> list[str]:
    """Return the valid keys of the settings class that a location leads to."""
    model: Any = Recipe
    for part in path:
        if isinstance(part, int) or not hasattr(model, "model_fields") or part not in model.model_fields:
            continue
        model = _settings_in(model.model_fields[part].annotation)
    return list(getattr(model, "model_fields", {}))


def _settings_in(annotation: Any) -> Any:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _settings_in(argument)) is not None:
            return found
    return None


def _override(table: dict[str, Any], override: str) -> None:
    key, separator, raw = override.partition("=")
    if not separator or not key.strip():
        raise UserError(f"{override!r} is not KEY=VALUE", remedy="Write, for example, shards.held_out_share=0.01")
    try:
        value: Any = tomllib.loads(f"value = {raw}")["value"]
    except tomllib.TOMLDecodeError:
        value = raw
    except RecursionError:
        raise UserError(f"the value of {key.strip()} is nested too deeply to be read", place="KEY=VALUE") from None
    *path, last = _by_position(table, key.strip().split("."))
    target: Any = table
    for part in path:
        target = _step(target, part, override)
    if isinstance(target, list):
        target[_index(target, last, override)] = value
    elif isinstance(target, dict):
        target[last] = value
    else:
        raise UserError(f"{override!r} goes below a key that holds a plain value")


def _by_position(table: Mapping[str, Any], path: list[str]) -> list[str]:
    """Return a path that begins with the name of a stage as one that begins with its position in its chain."""
    if len(path) > 1 and path[0] not in Recipe.model_fields:
        for key in ("stages", "edits"):
            for position, use in enumerate(table.get(key, ())):
                if isinstance(use, Mapping) and path[0] == _link(str(use.get("use", "")), use.get("as")):
                    return [key, str(position), *path[1:]]
    return path


def _link(use: str, instance: str | None) -> str:
    """Return the name by which a stage goes: its own, or that of a class which is named by its module."""
    if instance or ":" not in use:
        return instance or use
    from stages.registry import recipe_stage_class

    return recipe_stage_class(use, "recipe, key stages").name


def _step(target: Any, part: str, override: str) -> Any:
    if isinstance(target, list):
        return target[_index(target, part, override)]
    if not isinstance(target, dict):
        raise UserError(f"{override!r} goes below a key that holds a plain value")
    return target.setdefault(part, {})


def _index(target: list[Any], part: str, override: str) -> int:
    if not part.isdigit() or int(part) >= len(target):
        raise UserError(f"{override!r}: {part!r} is no position in a list of {len(target)}")
    return int(part)
