"""The passes of a recipe, in order, each with the settings and the outputs of other passes that its bytes depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from pipelines.beam.base import DriverPass, Pass
from pipelines.beam.work_list import Output
from pipelines.chain import build_chain, build_edits, fitted_languages
from pipelines.late import Redecision, measures_of
from pipelines.passes.catalog import Catalog
from pipelines.passes.components import NearComponents
from pipelines.passes.decide import Decide, Histograms, Late, Reference
from pipelines.passes.drops import Drops
from pipelines.passes.duplicates import Duplicates, NearWitnesses
from pipelines.passes.edits import Edits
from pipelines.passes.encoder import ChooseEncoder
from pipelines.passes.exact import Exact, ExactKeys
from pipelines.passes.fit_lm import FitLm
from pipelines.passes.judge import Judge
from pipelines.passes.keys import Prefer
from pipelines.passes.links import NearBands, NearBuckets
from pipelines.passes.near import Near, NearSets
from pipelines.passes.schedule import ResolveSchedule
from pipelines.passes.shuffle import SplitGroups
from pipelines.passes.tokenizer import CopyTokenizer, FitTokenizer, tokenizer_path
from pipelines.passes.write import Write
from pipelines.plan import Plan
from pipelines.planning.labels import Labelling
from pipelines.planning.reference import reference_files
from pipelines.reading import reading_of
from pipelines.recipe import Recipe
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.schema import DOCUMENT, TEXT_COLUMNS
from shards.training import ModelSettings, TrainSettings
from stages.base import Stage, link_of
from stages.dedup.order import can_order

KINDS: Final[tuple[type[Pass], ...]] = (
    FitLm,
    Judge,
    Histograms,
    Reference,
    Decide,
    Late,
    ExactKeys,
    Exact,
    NearBands,
    NearBuckets,
    NearComponents,
    NearSets,
    Near,
    NearWitnesses,
    Duplicates,
    Drops,
    Edits,
    FitTokenizer,
    ChooseEncoder,
    Write,
    Catalog,
    ResolveSchedule,
)
"""Every pass that a recipe can have, in order."""


def build_passes(workspace: Workspace, plan: Plan) -> list[Pass]:
    """Return the passes that a recipe needs, in the order in which they run.

    Raises:
        UserError: if a file that the recipe names is missing.
    """
    recipe = workspace.recipe
    passes: list[Pass] = []
    if models := fitted_languages(recipe):
        files = [tuple(reference_files(workspace, lm.corpus, f"recipe, key lm ({lm.language})")) for lm in models]
        named = zip(models, files, strict=True)
        passes.append(FitLm(tuple((lm.language, lm.order, paths) for lm, paths in named)))
    judge = Judge(workspace, plan, passes[0].output("model") if passes else None)
    passes.append(judge)
    domains = Labelling.of(recipe, plan, "domain")
    chain = tuple(build_chain(workspace, dict.fromkeys((lm.language for lm in fitted_languages(recipe)), "")))
    passes += _limits(workspace, judge, chain, domains)
    late = passes[-1].output("marks") if isinstance(passes[-1], Late) else None
    passes += _deduplication(recipe, plan, judge, late, domains, chain)
    passes += _writing(workspace, judge, passes[-1], domains)
    return passes


def _limits(workspace: Workspace, judge: Judge, chain: tuple[Stage, ...], domains: Labelling) -> Iterator[Pass]:
    """Yield the passes that apply limits after judging: none where all were known before."""
    verdicts = judge.output("verdicts")
    redecision, measures = Redecision(chain, bool(workspace.judged)), measures_of(chain)
    counted = reference = cuts = None
    if any(not one.limit.of for one in measures):
        histograms = Histograms(verdicts, redecision, domains)
        counted = histograms.output("histograms")
        yield histograms
    if of := [one for one in measures if one.limit.of]:
        files = [reference_files(workspace, one.limit.of, f"recipe, stage {one.key[0]}") for one in of]
        measured = Reference(workspace, chain, tuple(map(tuple, files)), judge.models)
        reference = measured.output("histograms")
        yield measured
    if measures:
        decide = Decide(counted, reference, redecision)
        cuts = decide.output("cuts")
        yield decide
    if measures or workspace.judged:
        yield Late(verdicts, cuts, redecision, domains)


def _deduplication(
    recipe: Recipe, plan: Plan, judge: Pass, late: Output | None, domains: Labelling, chain: tuple[Stage, ...]
) -> Iterator[Pass]:
    keys, dedup, labels = judge.output("keys"), recipe.dedup, Labelling.of(recipe, plan, "priority")
    measured = (reading_of(recipe.sources), *chain)
    splits, prefer = SplitGroups.of(plan, dedup.piece_bytes), _prefer(recipe, measured)
    verdicts = judge.output("verdicts") if prefer else None
    copies = drops = moved = removed = clusters = duplicates = of_clusters = None
    if dedup.exact:
        first = ExactKeys(keys, late, verdicts, prefer, labels, splits, dedup.piece_bytes)
        exact = Exact(first.output("keys"), first.output("ranges"), splits, dedup.range_bytes, dedup.near)
        yield from (first, exact)
        copies, drops = first.output("copies"), exact.output("drops")
    if dedup.near:
        lsh = dedup.threshold, dedup.permutations
        bands = NearBands(keys, late, copies, drops, splits, *lsh, dedup.piece_bytes)
        buckets = NearBuckets(bands.output("bands"), bands.output("ranges"), dedup.threshold, dedup.range_bytes)
        found = NearComponents(bands.output("links"), buckets.output("links"), splits, dedup.range_bytes)
        inputs = judge.output("documents"), keys, found.output("labels"), bands.output("shingles"), verdicts
        sets = NearSets(*inputs, prefer, labels, splits, dedup.shingle_words, *lsh, dedup.piece_bytes)
        rest = splits, *lsh, dedup.compared_per_key, dedup.range_bytes
        near = Near(sets.output("sets"), sets.output("ranges"), *rest)
        yield from (bands, buckets, found, sets, near)
        removed, clusters = near.output("removed"), near.output("clusters")
        if dedup.exact:
            witnesses = NearWitnesses(exact.output("followers"), removed, splits)
            yield witnesses
            moved = witnesses.output("moved")
    if dedup.exact or dedup.near:
        gathered = Duplicates(copies, drops, moved, removed, clusters, splits)
        yield gathered
        duplicates = gathered.output("duplicates")
        of_clusters = gathered.output("clusters") if dedup.near else None
    yield Drops(judge.output("verdicts"), late, duplicates, of_clusters, splits, domains, measured)


def _prefer(recipe: Recipe, chain: tuple[Stage, ...]) -> Prefer | None:
    """Return the column that decides which duplicate survives, where it is not the priority of the source.

    Raises:
        UserError: if verdicts have no such column, or one without an order.
    """
    if (asked := recipe.dedup.prefer) is None:
        return None
    known = {field.name: field.type for field in DOCUMENT if field.name not in TEXT_COLUMNS}
    known |= {"text_bytes": pa.int64()} | {
        f"{link_of(stage)}.{score.name}": score.type for stage in chain for score in stage.scores
    }
    usable = sorted(name for name, kind in known.items() if can_order(kind))
    if asked.column not in usable:
        raise UserError(
            f"duplicates cannot be ordered by {asked.column!r}",
            place="recipe, key dedup.prefer.column",
            remedy=f"Name one of {', '.join(usable)}",
        )
    return asked.column, asked.order == "largest"


def _writing(workspace: Workspace, judge: Judge, drops: Pass, domains: Labelling) -> Iterator[Pass]:
    recipe = workspace.recipe
    settings, end_of_text = recipe.tokenizer, recipe.tokenizer.end_of_text
    documents, last = judge.output("documents"), drops
    if recipe.edits:
        chain = tuple(build_edits(workspace, {lm.language: "" for lm in fitted_languages(recipe)}))
        models = judge.models if any(stage.language_models for stage in chain) else None
        last = Edits(workspace, chain, models, documents, drops.output("drops"), domains)
        yield last
    dropped, left = last.output("drops"), last.output("survivor_bytes")
    edits = last.output("edits") if recipe.edits else None
    fit: DriverPass
    if settings.file:
        fit = CopyTokenizer(tokenizer_path(workspace), end_of_text)
    else:
        sizes = settings.vocab_size, settings.sample_bytes
        fit = FitTokenizer(documents, dropped, edits, left, *sizes, end_of_text, recipe.seed)
    encoder = ChooseEncoder(documents, dropped, edits, fit.output("tokenizer"), fit.output("unfit"), end_of_text)
    yield from (fit, encoder)
    write = Write(
        documents,
        dropped,
        edits,
        drops.output("clusters"),
        left,
        fit.output("tokenizer"),
        fit.output("unfit"),
        encoder.output("quick"),
        domains,
        end_of_text,
        recipe.shards.target_bytes,
        recipe.shards.held_out_share,
        recipe.seed,
    )
    catalog = Catalog(write.output("shards"), fit.output("tokenizer"), end_of_text)
    yield from (write, catalog)
    if recipe.schedule is not None:
        model, training = recipe.model or ModelSettings(), recipe.training or TrainSettings()
        yield ResolveSchedule(catalog.output("train"), recipe.schedule, model, training)
