"""Checking a run before any document is read, without Beam: a mistake is told within a second."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from pipelines.chain import build_chain, build_edits, fitted_languages, with_defaults
from pipelines.effects import check_languages, check_names
from pipelines.late import measures_of
from pipelines.plan import Plan, load_sources, make_plan
from pipelines.planning.digests import Digests
from pipelines.planning.reference import reference_files
from pipelines.planning.sources import SourceTable
from pipelines.rejudge import carried
from pipelines.workspace import RECIPE_FILE, Workspace
from shards.errors import IncompleteError, UserError
from shards.files import fetch
from shards.manifest import unfolded_markers
from shards.marker import small_table
from shards.store import Store
from stages.base import Stage, early_rules, link_of
from stages.readers import cut

JUDGE = "judge"
"""The name of the pass that reads sources."""


def check(workspace: Workspace) -> Plan:
    """Check everything that a recipe names, before any document is read, and plan the splits.

    Raises:
        UserError: for the first thing that is wrong.
    """
    recipe = workspace.recipe
    check_names(recipe)
    for position, lm in enumerate(recipe.lm):
        if lm.corpus:
            otherwise = ", or name a model file with 'model' instead of 'corpus'"
            reference_files(workspace, lm.corpus, f"recipe, key lm.{position}.corpus", otherwise)
        elif not fetch(workspace.input_path(lm.model or "")).is_file():
            raise UserError(
                f"the language model {lm.model!r} is missing",
                place=f"recipe, key lm.{position}.model, looked in {workspace.base}",
                remedy="Train one with 'headrace lm train', or name reference text with 'corpus'",
            )
    # Models still to be fitted have no file yet: their language is known, their path is not.
    pending = {lm.language for lm in fitted_languages(recipe)}
    fitted = dict.fromkeys(pending, "")
    chain = [*build_chain(workspace, fitted), *build_edits(workspace, fitted)]
    for stage in chain:
        for path in stage.files():
            if path and not fetch(path).is_file():
                raise UserError(
                    f"the file {path!r} is missing", place=f"recipe, stage {link_of(stage)}", remedy="Fix its path"
                )
        stage.check_files()
    for measure in measures_of(chain):
        reference_files(workspace, measure.limit.of, f"recipe, stage {measure.key[0]}")
    for stage in chain:
        _require_a_way(stage)
    check_languages(chain, recipe)
    if recipe.tokenizer.file:
        # It is tried in a process of its own, and needs what passes need.
        from pipelines.passes.tokenizer import check_tokenizer

        check_tokenizer(workspace)
    known = load_sources(workspace.store)
    # Whether domains are part of what splits are called is for the stages to say that judge them.
    judged = carried_on(workspace).as_judged()
    return make_plan(judged, known, known_digests(workspace.store, known), cut)


def _require_a_way(stage: Stage) -> None:
    """Check that of no score the least value that stays is more than the greatest."""
    ends: dict[str, tuple[list[Any], list[Any]]] = {}
    for rule in early_rules(stage):
        for bound, said, found in zip(
            (rule.least, rule.greatest),
            (rule.check.min, rule.check.max),
            ends.setdefault(rule.check.score, ([], [])),
            strict=True,
        ):
            if bound is not None and bound.by is None and bound.default is not None:
                found.append((bound.default, said, rule.score.value_of(bound.default)))
    for least, greatest in ends.values():
        for low, high in itertools.product(least, greatest):
            if low[0] > high[0]:
                raise UserError(
                    f"{low[1]} is {low[2]:g}, and {high[1]} is {high[2]:g}: every document would be dropped",
                    place=f"recipe, stage {link_of(stage)}",
                    remedy=f"Make {low[1]} at most {high[1]}",
                )


def _spelled(workspace: Workspace) -> Workspace:
    """Return a workspace whose recipe says every parameter: a limit that a stage has by default is a limit, too."""
    return replace(workspace, recipe=with_defaults(workspace))


def carried_on(workspace: Workspace) -> Workspace:
    """Return a workspace that goes on with the verdicts of its folder, where limits were moved on their scores."""
    workspace = _spelled(workspace)
    if workspace.judged or not workspace.store.exists(RECIPE_FILE):
        return workspace
    try:
        judged = Workspace.open(workspace.store.root).judged
    except IncompleteError:
        # Damaged, and about to be written anew: what it said of moved limits is lost, so documents are judged again.
        return workspace
    return carried(workspace, judged) if judged else workspace


def known_digests(store: Store, sources: SourceTable) -> Digests:
    """Return the digests of sources that a folder has read: the saved ones, and those of a run that died since.

    Raises:
        UserError: if two splits have read one source, and not the same bytes.
    """
    return with_digests(store, sources, unfolded_markers(store, JUDGE))


def with_digests(store: Store, sources: SourceTable, markers: Iterable[pa.Table]) -> Digests:
    """Return the saved digests, and those in tables of the judges' markers."""
    return Digests.load(store).merged((small_table(table, "sources") for table in markers), sources, store.root)
