"""The passes of a recipe, in order, each with the settings and the outputs of other passes that its bytes depend on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pipelines.beam.base import DriverPass, Pass
from pipelines.beam.work_list import Output
from pipelines.chain import PERPLEXITY, fitted_languages
from pipelines.passes.catalog import Catalog
from pipelines.passes.decide import Decide
from pipelines.passes.drops import Drops
from pipelines.passes.exact import Exact, ExactRanges
from pipelines.passes.fit_lm import FitLm, reference_files
from pipelines.passes.judge import Judge
from pipelines.passes.near import Near, NearCandidates, NearPairs, NearSets, NearVerify
from pipelines.passes.schedule import ResolveSchedule
from pipelines.passes.tokenizer import CopyTokenizer, FitTokenizer, tokenizer_path
from pipelines.passes.write import Write
from pipelines.plan import Plan
from pipelines.planning.labels import Labelling
from pipelines.recipe import Recipe
from pipelines.workspace import Workspace
from shards.training import ModelSettings, TrainSettings

KINDS: Final[tuple[type[Pass], ...]] = (
    FitLm,
    Judge,
    Decide,
    ExactRanges,
    Exact,
    NearPairs,
    NearCandidates,
    NearSets,
    NearVerify,
    Near,
    Drops,
    FitTokenizer,
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
    cuts = None
    low, high = percentiles(recipe)
    if low is not None or high is not None:
        passes.append(Decide(judge.output("perplexity"), low, high))
        cuts = passes[-1].output("cuts")
    domains = Labelling.of(recipe, plan, "domain")
    passes += _deduplication(recipe, judge, cuts, Labelling.of(recipe, plan, "priority"), domains)
    passes += _writing(workspace, judge, passes[-1], domains)
    return passes


def percentiles(recipe: Recipe) -> tuple[float | None, float | None]:
    """Return the (low, high) percentiles that the recipe sets for perplexity, None where it sets none."""
    for use in recipe.stages:
        if use.use == PERPLEXITY:
            return use.parameters.get("low_percentile"), use.parameters.get("high_percentile")
    return None, None


def _deduplication(
    recipe: Recipe, judge: Pass, cuts: Output | None, priorities: Labelling, domains: Labelling
) -> Iterator[Pass]:
    keys, dedup = judge.output("keys"), recipe.dedup
    exact = removed = clusters = None
    if dedup.exact:
        ranges = ExactRanges(keys, cuts, dedup.range_bytes, priorities)
        merged = Exact(ranges.output("drops"))
        yield from (ranges, merged)
        exact = merged.output("drops")
    if dedup.near:
        pairs = NearPairs(keys, cuts, exact, dedup.threshold, dedup.permutations, dedup.range_bytes, priorities)
        candidates = NearCandidates(pairs.output("pairs"))
        sets = NearSets(judge.output("documents"), candidates.output("documents"), dedup.shingle_words)
        verified = NearVerify(candidates.output("pairs"), sets.output("sets"))
        near = Near(verified.output("pairs"), keys, dedup.threshold, priorities)
        yield from (pairs, candidates, sets, verified, near)
        removed, clusters = near.output("removed"), near.output("clusters")
    yield Drops(judge.output("verdicts"), cuts, exact, removed, clusters, domains)


def _writing(workspace: Workspace, judge: Pass, drops: Pass, domains: Labelling) -> Iterator[Pass]:
    recipe = workspace.recipe
    settings, end_of_text = recipe.tokenizer, recipe.tokenizer.end_of_text
    documents, dropped, left = judge.output("documents"), drops.output("drops"), drops.output("survivor_bytes")
    fit: DriverPass
    if settings.file:
        fit = CopyTokenizer(tokenizer_path(workspace), end_of_text)
    else:
        sizes = settings.vocab_size, settings.sample_bytes
        fit = FitTokenizer(documents, dropped, left, *sizes, end_of_text, recipe.seed)
    yield fit
    write = Write(
        documents,
        dropped,
        drops.output("clusters"),
        left,
        fit.output("tokenizer"),
        fit.output("unfit"),
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
