from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.chain import build_chain, build_edits, chain_section, edit_links, stage_names, with_defaults
from pipelines.recipe import changed_recipe, parse_recipe
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.manifest import digest_of
from stages.registry import REGISTRY, recipe_stages


def workspace(base: Path, **table: Any) -> Workspace:
    table.setdefault("sources", [{"glob": "*.jsonl"}])
    return Workspace.of(str(base / "out"), parse_recipe(table, "test"), str(base))


def section(base: Path, **table: Any) -> str:
    made = workspace(base, **table)
    return digest_of(chain_section(build_chain(made, {})))


def test_names_follow_the_recipe_and_end_with_deduplication(tmp_path: Path) -> None:
    table = {"sample": 0.5, "stages": [{"use": "gopher_quality_v2"}, {"use": "gopher_repetition_v2"}]}
    made = workspace(tmp_path, **table)
    assert stage_names(made.recipe) == [
        "read",
        "sample_v1",
        "gopher_quality_v2",
        "gopher_repetition_v2",
        "exact_dedup_v1",
        "near_dedup_v1",
    ]
    assert [stage.name for stage in build_chain(made, {})] == [
        "sample_v1",
        "gopher_quality_v2",
        "gopher_repetition_v2",
        "fingerprint_v2",
    ]
    bare = workspace(tmp_path, dedup={"exact": False, "near": False})
    assert stage_names(bare.recipe) == ["read"]
    assert [stage.name for stage in build_chain(bare, {})] == ["fingerprint_v2"]


def test_edits_are_a_chain_of_their_own_after_deduplication(tmp_path: Path) -> None:
    edits = [{"use": "repeated_lines_v1", "min_chars": 5}, {"use": "gopher_quality_v2", "as": "rest"}]
    made = workspace(tmp_path, stages=[{"use": "gopher_quality_v2"}], edits=edits)
    assert stage_names(made.recipe)[-3:] == ["near_dedup_v1", "repeated_lines_v1", "rest"]
    assert [stage.name for stage in build_chain(made, {})] == ["gopher_quality_v2", "fingerprint_v2"]
    assert [stage.name for stage in build_edits(made, {})] == ["repeated_lines_v1", "gopher_quality_v2"]
    saved = with_defaults(made).edits
    assert [use.parameters["min_chars"] for use in saved[:1]] == [5]
    assert saved[0].parameters["paragraphs"] is True
    assert saved[1].instance == "rest"
    assert section(tmp_path, edits=edits) == section(tmp_path)


@pytest.mark.parametrize(
    ("edits", "message"),
    [
        ([{"use": "gopher_quality_v2"}], "'gopher_quality_v2' is in the chain twice.*as = "),
        ([{"use": "repeated_lines_v1", "lines": False, "paragraphs": False}], "nothing to remove.*edits.0"),
        ([{"use": "perplexity_v1", "min_perplexity": {"percentile": 1}}], r"edits.0.*Give a number"),
        ([{"use": "extract_html_v1"}], r"takes text from the body.*edits.0.*Move the stage to \[\[stages\]\]"),
        ([{"use": "repeated_lines_v1", "mn_chars": 3}], r"did you mean 'min_chars'\?. Where: .*edits.0.mn_chars"),
    ],
)
def test_edits_that_cannot_be_are_refused(tmp_path: Path, edits: list[dict[str, Any]], message: str) -> None:
    made = workspace(tmp_path, stages=[{"use": "gopher_quality_v2"}], edits=edits)
    with pytest.raises(UserError, match=message):
        _ = [*build_edits(made, {}), *build_chain(made, {})]


@pytest.mark.parametrize(
    ("use", "message"),
    [
        ({"use": "gopher_qualty_v2"}, r"'gopher_qualty_v2'. Where: .*stages.0.use. Did you mean 'gopher_quality_v2'\?"),
        ({"use": "fingerprint_v2"}, r"is part of every chain .*stages.0.use. Leave it out.*\[dedup\]"),
        ({"use": "gopher_quality_v2", "min_word": 3}, r"no parameter 'min_word'; did you mean 'min_words'\?"),
        ({"use": "gopher_quality_v2", "min_words": -1}, r"-1 is not at least 0 \(found -1\)"),
        (
            {"use": "gopher_quality_v2", "min_words": {"langauge": {"de": 3}}},
            "a limit has no key 'langauge'.*min_words",
        ),
        ({"use": "gopher_quality_v2", "min_words": "many"}, r"valid number.*\(found 'many'\)"),
        ({"use": "perplexity_v1", "min_perplexity": {"percentile": 101.0}}, "less than or equal to 100"),
        (
            {"use": "perplexity_v1", "min_perplexity": {"percentile": 9.0}, "max_perplexity": {"percentile": 4.0}},
            "is not below 4.0",
        ),
    ],
)
def test_a_wrong_stage_is_the_users_to_fix(tmp_path: Path, use: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build_chain(workspace(tmp_path, stages=[use]), {})


def test_a_stage_twice_is_refused(tmp_path: Path) -> None:
    twice = [{"use": "gopher_quality_v2"}, {"use": "gopher_quality_v2", "min_words": 3}]
    for name in ("read", "exact_dedup_v1", "near_dedup_v1", "tokenizer", "kept"):
        own = workspace(tmp_path, stages=[{"use": "gopher_quality_v2", "as": name}])
        with pytest.raises(UserError, match=f"'{name}' is taken by headrace itself.*another name"):
            build_chain(own, {})
    with pytest.raises(UserError, match="'gopher_quality_v2' is in the chain twice"):
        build_chain(workspace(tmp_path, stages=twice), {})
    with pytest.raises(UserError, match=r"'sample_v1' is in the chain twice.*The key 'sample' .* adds sample_v1"):
        build_chain(workspace(tmp_path, sample=0.5, stages=[{"use": "sample_v1", "share": 0.1}]), {})


def test_what_the_command_lists_is_what_a_recipe_may_name(tmp_path: Path) -> None:
    needed = {"sample_v1": {"share": 0.1}, "url_blacklist_v1": {"lists": ["list.txt"]}}
    for name in recipe_stages():
        chain = build_chain(workspace(tmp_path, stages=[{"use": name, **needed.get(name, {})}]), {"en": ""})
        assert [stage.name for stage in chain] == [name, "fingerprint_v2"]
    for name in REGISTRY.keys() - set(recipe_stages()):
        with pytest.raises(UserError, match="cannot be named in a recipe"):
            build_chain(workspace(tmp_path, stages=[{"use": name}]), {})


def test_the_section_holds_parameters_and_content_but_no_place(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "list.txt").write_text("bad.example\n")
    use = {"use": "url_blacklist_v1", "lists": ["list.txt"]}
    before = section(tmp_path / "one", stages=[use])
    assert section(tmp_path / "other", stages=[use]) == before
    assert section(tmp_path / "other", stages=[{**use, "lists": [str(tmp_path / "one" / "list.txt")]}]) == before
    assert section(tmp_path / "one", stages=[{**use, "domains": ["web"]}]) != before
    (tmp_path / "one" / "list.txt").write_text("bad.example\nworse.example\n")
    assert section(tmp_path / "one", stages=[use]) != before


def test_what_later_passes_apply_judges_nothing_again(tmp_path: Path) -> None:
    def judged(low: float | None, threshold: float) -> str:
        use = {"use": "perplexity_v1"} | ({} if low is None else {"min_perplexity": {"percentile": low}})
        return section(tmp_path, stages=[use], dedup={"threshold": threshold})

    assert judged(None, 0.8) == judged(2.0, 0.8) == judged(3.0, 0.9)
    assert section(tmp_path, dedup={"shingle_words": 5}) != section(tmp_path, dedup={"shingle_words": 6})
    assert section(tmp_path, dedup={"permutations": 128}) != section(tmp_path, dedup={"permutations": 64})
    assert section(tmp_path, seed=1) != section(tmp_path, seed=2)
    assert section(tmp_path, sample=0.5) != section(tmp_path)
    fixed = {"use": "perplexity_v1", "max_tokens": 10}
    assert section(tmp_path, stages=[fixed]) != section(tmp_path, stages=[{"use": "perplexity_v1"}])


def test_models_of_the_recipe_and_fitted_ones_reach_perplexity(tmp_path: Path) -> None:
    made = workspace(
        tmp_path,
        lm=[{"language": "en", "model": "en.arpa"}, {"language": "de", "corpus": ["de.txt"]}],
        stages=[{"use": "perplexity_v1", "models": {"fr": "fr.arpa"}}],
    )
    (perplexity, _) = build_chain(made, {"de": "/fitted/de.arpa"})
    assert perplexity.files() == ("/fitted/de.arpa", str(tmp_path / "en.arpa"), str(tmp_path / "fr.arpa"))


OWN = """
from typing import ClassVar
from stages.base import stage
from stages.checks import Check
from stages.limits import AtLeastZero
from stages.scores import Count

@stage
class Long:
    name: ClassVar[str] = "long_v1"
    scores = (Count("chars"),)
    checks = (Check("too_long", "chars", max="max_chars"),)
    max_chars: AtLeastZero = 100

    def measure(self, batch):
        return {"chars": [len(text) for text in batch.column("text").to_pylist()]}
"""


def test_code_from_outside_counts_in_the_digest_and_in_the_saved_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, source in enumerate((OWN, OWN.replace("len(text)", "len(text) + 1"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "own_stages.py").write_text(source)
        monkeypatch.syspath_prepend(str(folder))
        sys.modules.pop("own_stages", None)
        made = workspace(tmp_path, stages=[{"use": "own_stages:Long", "as": "long"}])
        (use,) = with_defaults(made).stages
        assert (use.link, use.parameters) == ("long", {"max_chars": 100.0, "domains": ()})
        assert use.origin is not None
        assert use.origin.startswith("sha256:")
        found.append((use.origin, chain_section(build_chain(made, {}))))
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]
    assert stage_names(made.recipe)[1] == "long"
    # Without "as" it goes by the name of its class, in drops and in what a command line names.
    named = workspace(tmp_path, edits=[{"use": "own_stages:Long"}]).recipe
    assert edit_links(named) == ["long_v1"]
    (use,) = changed_recipe(named, ["long_v1.max_chars=5"], "test").edits
    assert use.parameters == {"max_chars": 5}
