"""The passes of a recipe, in order, each with the settings and the outputs of other passes that its bytes depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipelines.beam.base import DriverPass, Pass
from pipelines.beam.work_list import Output
from pipelines.chain import build_chain, build_edits, fitted_languages
from pipelines.late import Redecision, measures_of
from pipelines.passes.catalog import Catalog
from pipelines.passes.decide import Decide, Histograms, Late, Reference
from pipelines.passes.drops import Drops
from pipelines.passes.edits import Edits
from pipelines.passes.encoder import ChooseEncoder
from pipelines.passes.exact import Exact, ExactRanges
from pipelines.passes.fit_lm import FitLm
from pipelines.passes.judge import Judge
from pipelines.passes.near import Near, NearCandidates, NearPairs, NearSets, NearVerify
from pipelines.passes.schedule import ResolveSchedule
from pipelines.passes.tokenizer import CopyTokenizer, FitTokenizer, tokenizer_path
from pipelines.passes.write import Write
from pipelines.plan import Plan
from pipelines.planning.labels import Labelling
from pipelines.planning.reference import reference_files
from pipelines.reading import reading_of
from pipelines.recipe import Recipe
from pipelines.workspace import Workspace
from shards.training import ModelSettings, TrainSettings
from stages.base import Stage

KINDS: Final[tuple[type[Pass], ...]] = (
    FitLm,
    Judge,
    Histograms,
    Reference,
    Decide,
    Late,
    ExactRanges,
    Exact,
    NearPairs,
    NearCandidates,
    NearSets,
    NearVerify,
    Near,
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
    passes += _deduplication(recipe, judge, late, Labelling.of(recipe, plan, "priority"), domains, chain)
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
    recipe: Recipe,
    judge: Pass,
    late: Output | None,
    priorities: Labelling,
    domains: Labelling,
    chain: tuple[Stage, ...],
) -> Iterator[Pass]:
    keys, dedup = judge.output("keys"), recipe.dedup
    exact = removed = clusters = None
    if dedup.exact:
        ranges = ExactRanges(keys, late, dedup.range_bytes, priorities)
        merged = Exact(ranges.output("drops"))
        yield from (ranges, merged)
        exact = merged.output("drops")
    if dedup.near:
        pairs = NearPairs(keys, late, exact, dedup.threshold, dedup.permutations, dedup.range_bytes, priorities)
        candidates = NearCandidates(pairs.output("pairs"))
        sets = NearSets(judge.output("documents"), candidates.output("documents"), dedup.shingle_words)
        verified = NearVerify(candidates.output("pairs"), sets.output("sets"))
        near = Near(verified.output("pairs"), keys, dedup.threshold, priorities)
        yield from (pairs, candidates, sets, verified, near)
        removed, clusters = near.output("removed"), near.output("clusters")
    yield Drops(judge.output("verdicts"), late, exact, removed, clusters, domains, (reading_of(recipe.sources), *chain))


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
