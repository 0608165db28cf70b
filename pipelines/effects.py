"""Settings that can have no effect: refused where they must be a mistake, else said before a run and after it."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipelines.chain import build_chain, build_edits, fitted_languages, stage_names
from pipelines.late import language_setter
from pipelines.recipe import Recipe
from pipelines.run import Run
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.schema import UNKNOWN_LANGUAGE
from stages.base import Stage, link_of
from stages.checks import limit_of
from stages.limits import Grouped


def check_names(recipe: Recipe) -> None:
    """Refuse names that mean nothing: a stage of an unknown domain would judge no document, without any sign of it.

    Raises:
        UserError: for the first.
    """
    domains = sorted({source.domain for source in recipe.sources} | {rule.name for rule in recipe.domains})
    for key, uses in (("stages", recipe.stages), ("edits", recipe.edits)):
        for position, use in enumerate(uses):
            named = use.parameters.get("domains", ())
            if isinstance(named, list | tuple):
                _require_known(named, domains, f"recipe, key {key}.{position}.domains")
            for name, value in use.parameters.items():
                _require_known(_limited_domains(value), domains, f"recipe, key {key}.{position}.{name}")
    if recipe.schedule:
        groups = recipe.schedule.groups
        named = [name for members in groups.values() for name in members] + list(recipe.schedule.max_epochs)
        weights = (phase.weights for phase in recipe.schedule.phases if not isinstance(phase.weights, str))
        named += [name for weight in weights for name in weight]
        _require_known(named, [*domains, *groups], "recipe, key schedule")
    languages = [lm.language for lm in recipe.lm]
    for position, language in enumerate(languages):
        if language in languages[:position]:
            raise UserError(
                f"there are two models of {language!r}",
                place=f"recipe, key lm.{position}",
                remedy="Keep one; its corpus may have several globs",
            )


def _limited_domains(value: Any) -> list[str]:
    """Return the domains that a parameter has limits for, none if it is no limit by domain."""
    if isinstance(value, list | tuple):
        return [name for item in value for name in _limited_domains(item)]
    limits = value.get("domain") if isinstance(value, Mapping) else None
    return list(limits) if isinstance(limits, Mapping) else []


def _require_known(named: Iterable[str], known: Sequence[str], place: str) -> None:
    for name in named:
        if name not in known:
            raise UserError(
                f"no document can be of the domain {name!r}", place=place, remedy=f"The recipe has {', '.join(known)}"
            )


def check_languages(chain: Sequence[Stage], recipe: Recipe) -> None:
    """Check that every language that a recipe names is one that a document can have.

    Raises:
        UserError: for the first that none can have, where a stage of the chain sets the language.
    """
    known = _known(chain)
    if known is None:
        return
    for lm in recipe.lm:
        _require(lm.language, known, f"recipe, key lm ({lm.language})")
    for stage in chain:
        for parameter, languages in _named(stage).items():
            for language in languages:
                _require(language, known, f"recipe, stage {link_of(stage)}, {parameter}")


def _known(chain: Sequence[Stage]) -> frozenset[str] | None:
    found = [known for stage in chain if (known := stage.known_languages()) is not None]
    return frozenset({UNKNOWN_LANGUAGE}.union(*found)) if found else None


def _named(stage: Stage) -> dict[str, Sequence[str]]:
    """Return the languages that a stage's parameters name, those of its limits too."""
    named = dict(stage.named_languages())
    for check in stage.checks:
        for end in (check.min, check.max):
            limit = limit_of(stage, end)
            if isinstance(end, str) and isinstance(limit, Grouped) and limit.language:
                named[end] = sorted(limit.language)
    return named


def _require(language: str, known: frozenset[str], place: str) -> None:
    if language in known:
        return
    near = difflib.get_close_matches(language, sorted(known), n=1, cutoff=0.5)
    some = ", ".join(sorted(known)[:8])
    remedy = f"Did you mean {near[0]!r}?" if near else f"It knows {len(known)} languages, such as {some}"
    raise UserError(
        f"no document can be of the language {language!r}: the language model does not know it",
        place=place,
        remedy=remedy,
    )


def idle(workspace: Workspace) -> list[str]:
    """Return what of a recipe can have no effect, each as a sentence for people, before anything is read."""
    recipe = workspace.recipe
    fitted = {lm.language: "" for lm in fitted_languages(recipe)}
    chain = [*build_chain(workspace, fitted), *build_edits(workspace, fitted)]
    said = [
        f"{link_of(stage)} has no language model, so it scores no document: add a table [[lm]]"
        for stage in chain
        if (models := _models(stage)) is not None and not models
    ]
    idle_ones = sorted({language for stage in chain for language in _languages(stage)})
    if idle_ones and _known(chain) is None:
        said.append(
            f"no stage sets the language of documents, so what is said of {', '.join(idle_ones)} has no effect: "
            "add language_v1 before it"
        )
    said += [
        f"{link_of(stage)} comes before the stage that sets the language, so what it says of {', '.join(named)} "
        "has no effect: move it behind"
        for stage in chain[: language_setter(chain)]
        if (named := _languages(stage))
    ]
    return said


def _languages(stage: Stage) -> list[str]:
    """Return the languages that a stage's parameters name, the unknown one apart."""
    return sorted({language for found in _named(stage).values() for language in found} - {UNKNOWN_LANGUAGE})


def _models(stage: Stage) -> Mapping[str, str] | None:
    return getattr(stage, stage.language_models) if stage.language_models else None


def unmodelled(run: Run) -> list[str]:
    """Return, of a finished run, the languages that a stage met without a model for them, as sentences for people."""
    names = stage_names(run.recipe)
    said = []
    fitted = {lm.language: "" for lm in fitted_languages(run.recipe)}
    for stage in [*build_chain(run.workspace, fitted), *build_edits(run.workspace, fitted)]:
        models = _models(stage)
        if not models:
            continue
        # Those that ended before it did not meet it.
        before = names[: names.index(link_of(stage))]
        met: Counter[str] = Counter()
        for row in run.manifest("drops").table("counts").to_pylist():
            if row["dropped_by"] not in before and (not stage.domains or row["domain"] in stage.domains):
                met[row["language"]] += row["rows"]
        missing = [(language, rows) for language, rows in met.most_common() if language not in models]
        if missing:
            shown = ", ".join(f"{language} ({rows:,})" for language, rows in missing[:8])
            more = f" and {len(missing) - 8} more" if len(missing) > 8 else ""
            said.append(f"{link_of(stage)} has no model for documents in {shown}{more}: it did not score them")
    return said
