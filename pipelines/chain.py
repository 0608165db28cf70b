"""The chain of stages that a recipe asks for, built once per process, and the order in which statistics name it."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, cast

import pydantic

from pipelines.late import LATE
from pipelines.recipe import LmSettings, Recipe, StageUse, wrong_value
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.files import fetch, hash_file
from stages.base import Stage, late_limits, link_of, parameters
from stages.judges.fingerprint import Fingerprint
from stages.judges.sample import Sample
from stages.readers.reading import READ
from stages.registry import origin_of, origin_of_class, recipe_stage_class

EXACT_DEDUP = "exact_dedup_v1"
NEAR_DEDUP = "near_dedup_v1"
EXACT_DUPLICATE = "exact_duplicate"
NEAR_DUPLICATE = "near_duplicate"
TOKENIZER = "tokenizer"
"""The last link of a finished run: it drops nothing, and a document may fail in it."""
OWN_LINKS = (READ, EXACT_DEDUP, NEAR_DEDUP, TOKENIZER, "kept")
"""What tables of a run already call something, so that no stage may be called so."""


def stage_names(recipe: Recipe) -> list[str]:
    """Return the names of every link of the chain, in order, as drop statistics list them."""
    names = [READ]
    if recipe.sample < 1.0:
        names.append(Sample.name)
    names += [use.link for use in recipe.stages]
    names += [use.link + LATE for use in recipe.stages if has_late_limit(use)]
    if recipe.dedup.exact:
        names.append(EXACT_DEDUP)
    if recipe.dedup.near:
        names.append(NEAR_DEDUP)
    names += edit_links(recipe)
    return names


def edit_links(recipe: Recipe) -> list[str]:
    """Return the names of the links that come after deduplication."""
    return [use.link for use in recipe.edits]


def has_late_limit(use: StageUse) -> bool:
    """Return whether a stage has a limit that is measured, so that it drops once more after all were judged."""

    def measured(value: Any) -> bool:
        if isinstance(value, Mapping):
            return "percentile" in value
        return isinstance(value, list | tuple) and any(map(measured, value))

    return any(map(measured, use.parameters.values()))


def build_chain(workspace: Workspace, fitted: Mapping[str, str]) -> list[Stage]:
    """Build the stages that judge a document, fingerprint last.

    ``fitted`` maps a language to the path of the model fitted from the recipe's reference text.

    Raises:
        UserError: for an unknown stage, an unknown or wrong parameter, or a file that is missing.
    """
    recipe = workspace.recipe
    chain: list[Stage] = []
    if recipe.sample < 1.0:
        chain.append(cast(Stage, Sample(share=recipe.sample, seed=recipe.seed)))
    for position, use in enumerate(recipe.stages):
        chain.append(build_stage(workspace, use, f"recipe, key stages.{position}", fitted))
    _require_distinct(recipe, [*(link_of(stage) for stage in chain), *edit_links(recipe)])
    dedup = recipe.dedup
    try:
        fingerprint = Fingerprint(
            shingle_words=dedup.shingle_words,
            permutations=dedup.permutations,
            threshold=dedup.threshold,
            seed=recipe.seed,
        )
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        where = ".".join(["recipe, key dedup", *map(str, first["loc"])])
        raise UserError(first["msg"].removeprefix("Value error, "), place=where) from error
    # What ``@stage`` adds to a class is beyond a type checker's sight.
    chain.append(cast(Stage, fingerprint))
    return chain


def build_edits(workspace: Workspace, fitted: Mapping[str, str]) -> list[Stage]:
    """Build the stages that edit and judge what deduplication left; ``fitted`` as for ``build_chain``.

    Raises:
        UserError: as ``build_chain`` does, for a limit that is measured, and for a stage that needs more than text.
    """
    chain: list[Stage] = []
    for position, use in enumerate(workspace.recipe.edits):
        place = f"recipe, key edits.{position}"
        chain.append(build_stage(workspace, use, place, fitted))
        if "payload" in chain[-1].needs:
            raise UserError(
                f"{link_of(chain[-1])} takes text from the body of a record, and what is left in [[edits]] is text",
                place=place,
                remedy="Move the stage to [[stages]]",
            )
        if late_limits(chain[-1]):
            raise UserError(
                "a percentile is measured on what [[stages]] judges, and cannot be a limit in [[edits]]",
                place=place,
                remedy="Give a number, or move the stage to [[stages]]",
            )
    return chain


def _require_distinct(recipe: Recipe, links: Sequence[str]) -> None:
    if taken := next((name for name in links if name in OWN_LINKS), None):
        raise UserError(
            f"the name {taken!r} is taken by headrace itself",
            place="recipe, key stages",
            remedy='Give the stage another name with as = "..."',
        )
    twice = next((name for name in links if links.count(name) > 1), None)
    if twice is None:
        return
    if twice == Sample.name and recipe.sample < 1.0:
        remedy = f"The key 'sample' (or --sample) adds {twice}: keep one"
    else:
        remedy = 'Drops and scores go by its name: give one of them another with as = "..."'
    raise UserError(f"the stage {twice!r} is in the chain twice", place="recipe, key stages", remedy=remedy)


def build_stage(workspace: Workspace, use: StageUse, place: str, fitted: Mapping[str, str]) -> Stage:
    """Build one stage from its table in the recipe, its paths resolved."""
    kind = recipe_stage_class(use.use, f"{place}.use")
    given = dict(use.parameters)
    for name in kind.path_parameters:
        if name in given:
            given[name] = _resolved(workspace, given[name])
    if parameter := kind.language_models:
        given[parameter] = {**_models(workspace, fitted), **given.get(parameter, {})}
    if "instance" in given:
        raise UserError(f"{use.use} has no parameter 'instance'; did you mean 'as'?", place=f"{place}.instance")
    try:
        return kind(**{**given, "instance": use.instance or ""})
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "unexpected_keyword_argument":
            near = difflib.get_close_matches(key, _parameter_names(kind), n=1, cutoff=0.0)
            raise UserError(
                f"{use.use} has no parameter {key!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
                place=f"{place}.{key}",
            ) from error
        if first["type"] == "extra_forbidden":
            remedy = "It has 'language' or 'domain' and 'default', or 'percentile', 'by' and 'of'"
            raise UserError(
                f"a limit has no key {str(first['loc'][-1])!r}", place=f"{place}.{key}", remedy=remedy
            ) from error
        # A check over several parameters has the whole call as its input, which says nothing to a reader.
        what = wrong_value(first) if first["loc"] else first["msg"].removeprefix("Value error, ")
        raise UserError(what, place=f"{place}.{key}" if key else place) from error


def with_defaults(workspace: Workspace) -> Recipe:
    """Return the recipe with every parameter of every stage spelled out: the saved one says all that was decided.

    Paths stay as they are written.
    """
    pending = {lm.language: "" for lm in fitted_languages(workspace.recipe)}
    spelled: dict[str, tuple[StageUse, ...]] = {}
    for key, chain in (("stages", workspace.recipe.stages), ("edits", workspace.recipe.edits)):
        uses = []
        for position, use in enumerate(chain):
            built = build_stage(workspace, use, f"recipe, key {key}.{position}", pending)
            decided = {key: value for key, value in parameters(built).items() if key not in built.path_parameters}
            given = {**decided, **use.parameters, "as": use.instance, "origin": origin_of(use.use)}
            uses.append(StageUse(use=use.use, **{name: value for name, value in given.items() if value is not None}))
        spelled[key] = tuple(uses)
    return workspace.recipe.model_copy(update=spelled)


def _parameter_names(kind: type[Stage]) -> list[str]:
    return [field.name for field in dataclasses.fields(cast(Any, kind))]


def _resolved(workspace: Workspace, value: Any) -> Any:
    if isinstance(value, str):
        return workspace.input_path(value) if value else value
    if isinstance(value, dict):
        return {key: _resolved(workspace, item) for key, item in value.items()}
    return tuple(_resolved(workspace, item) for item in value)


def _models(workspace: Workspace, fitted: Mapping[str, str]) -> dict[str, str]:
    given = {lm.language: workspace.input_path(lm.model) for lm in workspace.recipe.lm if lm.model}
    return {**given, **fitted}


def fitted_languages(recipe: Recipe) -> list[LmSettings]:
    """Return the language models that the run itself fits."""
    return [lm for lm in recipe.lm if lm.corpus]


def chain_section(chain: Sequence[Stage]) -> list[Any]:
    """Return names, parameters and the content of models and lists of a chain, for a digest: no path is part of it.

    A model without a path is still to be fitted.
    """
    section: list[Any] = []
    for stage in chain:
        paths = set(stage.path_parameters)
        values = parameters(stage)
        files = [path for path in stage.files() if path]
        content = {name: _content(values.pop(name), files) for name in sorted(paths)}
        values |= early_values(stage, values)
        for name in stage.applied_later:
            values.pop(name)
        # What a stage reads without being told where, such as a default model.
        named = [path for name in paths for path in _paths(parameters(stage)[name])]
        own = sorted(hash_file(fetch(path))[0] for path in files if not any(_is_below(path, name) for name in named))
        section.append([stage.name, link_of(stage), origin_of_class(type(stage)), values, content, own])
    return section


def early_values(stage: Stage, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that hold limits, with none in place of those that are measured: no verdict depends on
    these, so moving one judges nothing again.
    """
    found: dict[str, Any] = {}
    for name in sorted({str(getattr(stage.checks[position], end)) for position, end, _ in late_limits(stage)}):
        parameter, _, item = name.partition(".")
        value = found.get(parameter, values[parameter])
        found[parameter] = [None if i == int(item) else one for i, one in enumerate(value)] if item else None
    return found


def _content(value: Any, files: Sequence[str]) -> Any:
    """Return what a path parameter's files hold, by the names that verdicts may mention."""
    if isinstance(value, Mapping):
        return {key: _content(item, files) for key, item in sorted(value.items())}
    if not isinstance(value, str):
        return [_content(item, files) for item in value]
    below = sorted(path for path in files if _is_below(path, value))
    return [[path[len(value) :] or PurePath(path).name, hash_file(fetch(path))[0]] for path in below]


def _paths(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    items = value.values() if isinstance(value, Mapping) else value
    return [path for item in items for path in _paths(item)]


def _is_below(path: str, folder: str) -> bool:
    return bool(folder) and (path == folder or path.startswith(folder.rstrip("/") + "/"))
