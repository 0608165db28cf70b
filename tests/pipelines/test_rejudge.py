from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.driver import check, curate
from pipelines.inspection.funnel import report_json
from pipelines.inspection.verdicts import verdicts
from pipelines.recipe import changed_recipe, parse_recipe
from pipelines.rejudge import is_tighter, obstacles, with_limits
from pipelines.workspace import Workspace
from shards.errors import UserError
from stages.base import early_rules
from stages.checks import ANY, Check, Rule
from stages.judges.gopher_quality import GopherQuality
from stages.judges.language import Language
from stages.limits import Bound
from stages.scores import Category, Count

COUNT = Count("count")
CATEGORY = Category("category")
GROUPS = ["en", "de", "fr"]

steps = st.none() | st.integers(-3, 3)
bounds = (
    st.none()
    | st.builds(
        Bound,
        by=st.just("language"),
        steps=st.dictionaries(st.sampled_from(GROUPS[:2]), st.integers(-3, 3), min_size=1),
        default=steps,
    )
    | st.builds(Bound, default=steps)
)
numbers = st.builds(
    Rule,
    st.just(Check("r", "count")),
    st.just(0),
    st.just(COUNT),
    least=bounds,
    greatest=bounds,
    drops_null=st.booleans(),
)
names = st.sets(st.sampled_from("abc"), max_size=3).map(lambda found: tuple(sorted(found)))
categories = st.builds(
    Rule,
    st.just(Check("r", "category")),
    st.just(0),
    st.just(CATEGORY),
    allowed=names.map(lambda found: found or None),
    forbidden=names | st.just((ANY,)),
    drops_null=st.booleans(),
)


def dropped(rule: Rule) -> set[tuple[Any, str]]:
    """Every (value, language) that a check drops."""
    values = [None, *range(-5, 6)] if rule.score is COUNT else [None, *"abcd"]
    rows = [(value, language) for value in values for language in GROUPS]
    column = pa.array([value for value, _ in rows], rule.score.type)
    hits = rule.hits(column, {"language": pa.array([language for _, language in rows])})
    return {row for row, hit in zip(rows, hits.tolist(), strict=True) if hit}


@settings(deadline=None, max_examples=400)
@given(pair=st.tuples(numbers, numbers) | st.tuples(categories, categories))
def test_a_tighter_check_drops_all_that_the_other_drops(pair: tuple[Rule, Rule]) -> None:
    old, new = pair
    if is_tighter(old, new):
        assert dropped(old) <= dropped(new)


@settings(deadline=None, max_examples=200)
@given(rule=numbers | categories)
def test_a_check_is_as_tight_as_itself(rule: Rule) -> None:
    assert is_tighter(rule, rule)


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ({"min_words": 50}, {"min_words": 60}, ""),
        ({"min_words": 50}, {"min_words": 40}, "too_few_words was dropped at once"),
        ({"max_words": 500}, {"max_words": 400}, ""),
        ({"max_words": 500}, {"max_words": 600}, "too_many_words was dropped at once"),
        ({"min_words": {"percentile": 5}}, {"min_words": {"percentile": 1}}, ""),
        ({"min_words": {"percentile": 5}}, {"min_words": 10}, ""),
        ({"min_words": 10}, {"min_words": {"percentile": 5}}, "too_few_words was dropped at once"),
        ({"min_words": 10}, {"min_words": {"language": {"en": 20}, "default": 10}}, ""),
        ({"min_words": 10}, {"min_words": {"language": {"en": 20}}}, "too_few_words was dropped at once"),
        ({"min_words": {"language": {"en": 20}}}, {"min_words": {"domain": {"web": 20}}}, "dropped at once"),
        ({"min_words": {"language": {"en": 20}}}, {"min_words": 20}, ""),
        ({}, {"stop_words": {"en": ("the",)}}, "stop_words decides what is measured"),
        ({}, {"domains": ("web",)}, "domains decides what is measured"),
    ],
)
def test_what_stored_scores_can_answer(before: dict[str, Any], after: dict[str, Any], why: str) -> None:
    found = obstacles([GopherQuality(**before)], [GopherQuality(**after)])
    assert (why in found[0]) if why else found == []


def test_wanted_languages_may_become_fewer() -> None:
    every, some, other = Language(), Language(keep=("en", "de")), Language(keep=("en", "fr"))
    assert obstacles([every], [some]) == []
    assert obstacles([some], [Language(keep=("de",))]) == []
    assert "unwanted_language was dropped at once" in obstacles([some], [other])[0]
    assert "unwanted_language was dropped at once" in obstacles([some], [every])[0]
    assert obstacles([every], [Language(min_chars=60)]) == ["language_v1: min_chars decides what is measured"]
    assert "the chain is another" in obstacles([every], [every, GopherQuality()])[0]


def test_a_limit_by_a_language_that_was_set_anew_cannot_be_moved() -> None:
    def chain(first: tuple[str, ...], second: tuple[str, ...], words: int) -> list[Any]:
        quality = GopherQuality(min_words={"language": {"en": words}, "default": 50})
        return [Language(domains=first), quality, Language(domains=second, instance="again")]

    for first, second, why in (((), (), True), (("web",), (), True), (("web",), ("books",), False)):
        assert not obstacles(chain(first, second, 60), chain(first, second, 60))
        found = obstacles(chain(first, second, 60), chain(first, second, 70))
        assert [("a later stage set anew" in one) for one in found] == ([True] if why else [])


def test_rules_are_in_the_order_of_checks() -> None:
    stage = GopherQuality()
    assert [rule.check for rule in early_rules(stage)] == list(stage.checks)
    assert np.all(np.array([rule.code for rule in early_rules(stage)]) >= 0)


def shards_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted((root / "shards").rglob("*.arrow"))}


def ends_of(run: Any) -> dict[int, tuple[Any, Any]]:
    rows = (row for table in verdicts(run) for row in table.to_pylist())
    return {row["doc_id"]: (row["dropped_by"], row["reason"]) for row in rows}


MOVES: list[dict[str, Any]] = [
    {"gopher_quality_v2.min_words": 70},
    {"gopher_quality_v2.min_words": "{ domain = { web = 80, wiki = 90 }, default = 20 }"},
    {"perplexity_v1.min_perplexity.percentile": 10.0, "perplexity_v1.max_perplexity.percentile": 99.0},
    {"gopher_quality_v2.min_mean_word_chars": 3.9, "perplexity_v1.max_perplexity": "{ percentile = 80 }"},
    {"perplexity_v1.min_perplexity": 60.0, "perplexity_v1.max_perplexity": "{ percentile = 90, by = 'domain' }"},
    {
        "perplexity_v1.unmodelled": "'drop'",
        "perplexity_v1.min_perplexity": "{ percentile = 60, of = ['reference.txt'] }",
    },
]


@pytest.mark.parametrize("position", range(len(MOVES)))
def test_rejudged_and_run_is_as_if_run_with_these_limits(
    position: int, made: Any, corpus: Any, run_recipe: Any, copied: Path, tmp_path: Path
) -> None:
    """Survivors, shards and the whole report; twice in a row, and judging is not repeated."""
    changes = MOVES[position]
    overrides = [f"{key}={value}" for key, value in changes.items()]
    workspace = Workspace.open(str(copied))
    wanted = with_limits(workspace, changed_recipe(workspace.recipe, overrides, "test"))
    plan = check(wanted)
    from tests.pipelines.conftest import Notes, Quick

    notes = Notes()
    curate(wanted, plan, Quick(), notes, last="late")  # type: ignore[arg-type]
    assert "judge" in notes.unchanged
    assert not {"exact", "drops", "write"} & set(notes.ended)
    again = Workspace.open(str(copied))
    assert again.recipe.stages == wanted.recipe.stages
    notes = Notes()
    run = curate(replaced(again), plan, Quick(), notes)  # type: ignore[arg-type]
    assert {"judge", "late"} <= notes.unchanged
    table = changed_recipe(parse_recipe(corpus.recipe(), "test"), overrides, "test").model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    fresh = run_recipe(tmp_path / "fresh", table, corpus.folder)
    assert shards_of(copied) == shards_of(fresh.root)
    assert ends_of(run) == ends_of(fresh.run)
    assert report_json(run) == report_json(fresh.run)
    assert ends_of(run) != ends_of(made.run)
    # And back: the limits that it was judged with need no stored marks.
    back = curate(Workspace.of(str(copied), made.workspace.recipe, made.workspace.base), plan, Quick(), Notes())  # type: ignore[arg-type]
    assert shards_of(copied) == shards_of(made.root)
    assert ends_of(back) == ends_of(made.run)


def replaced(workspace: Workspace) -> Workspace:
    """What 'headrace run RUN' starts from: the saved recipe, in a workspace that knows nothing else."""
    return Workspace.of(workspace.store.root, workspace.recipe, workspace.base)


def test_other_keys_and_loosened_limits_are_refused_before_anything_is_written(copied: Path) -> None:
    workspace = Workspace.open(str(copied))
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    for override, message in (
        ("gopher_quality_v2.min_words=10", "its limit is loosened.*must be judged again"),
        ("dedup.threshold=0.9", "'dedup' is something else"),
        ("gopher_quality_v2.min_wrods=10", "did you mean 'min_words'"),
        ("gopher_quality_v2.min_words={ domain = { wbe = 80 }, default = 20 }", "no document can be of the domain"),
    ):
        with pytest.raises(UserError, match=message):
            with_limits(workspace, changed_recipe(workspace.recipe, [override], "test"))
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before


def test_limits_by_domain_and_what_later_stages_made_of_a_document(
    corpus: Any, run_recipe: Any, tmp_path: Path
) -> None:
    """Of judges that asked for no domain; of documents that a later stage edited, or that failed in it."""
    editor = {"use": "tests.stages.editors:Replacer", "pattern": "the", "raises_on": "picture"}
    quality = {"use": "gopher_quality_v2", "min_words": 20}
    table = corpus.recipe(stages=[quality, editor], lm=None, domains=None)
    first = run_recipe(tmp_path / "first", table, corpus.folder)
    assert any(row["failed"] and row["dropped_by"] == "replacer_v1" for row in first.verdicts())
    override = "gopher_quality_v2.min_words={ domain = { books = 90 }, default = 70 }"
    workspace = Workspace.open(str(first.root))
    wanted = with_limits(workspace, changed_recipe(workspace.recipe, [override], "test"))
    from tests.pipelines.conftest import Notes, Quick

    curate(wanted, check(wanted), Quick(), Notes(), last="late")  # type: ignore[arg-type]
    notes, again = Notes(), replaced(Workspace.open(str(first.root)))
    run = curate(again, check(again), Quick(), notes)  # type: ignore[arg-type]
    assert "judge" in notes.unchanged
    quality["min_words"] = {"domain": {"books": 90}, "default": 70}
    fresh = run_recipe(tmp_path / "fresh", table, corpus.folder)
    assert ends_of(run) == ends_of(fresh.run)
    assert report_json(run) == report_json(fresh.run)


def test_random_tightenings_agree_with_a_fresh_run(corpus: Any, run_recipe: Any, copied: Path, tmp_path: Path) -> None:
    rng = random.Random(3)
    overrides: list[str] = []
    for number in range(2):
        words, share = 60 + 8 * number + rng.randrange(8), rng.choice([88.0, 93.0])
        overrides = [
            f"gopher_quality_v2.min_words={words}",
            f"perplexity_v1.max_perplexity={{ percentile = {share}, by = 'domain' }}",
        ]
        workspace = Workspace.open(str(copied))
        wanted = with_limits(workspace, changed_recipe(workspace.recipe, overrides, "test"))
        from tests.pipelines.conftest import Notes, Quick

        run = curate(wanted, check(wanted), Quick(), Notes())  # type: ignore[arg-type]
    table = changed_recipe(parse_recipe(corpus.recipe(), "test"), overrides, "test").model_dump(
        mode="json", by_alias=True, exclude_none=True
    )
    fresh = run_recipe(tmp_path / "fresh", table, corpus.folder)
    assert ends_of(run) == ends_of(fresh.run)
    assert shards_of(copied) == shards_of(fresh.root)
