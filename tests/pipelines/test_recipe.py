from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.recipe import Recipe, load_recipe, parse_recipe
from shards.errors import UserError

MINIMAL = '[[sources]]\nglob = "in/*.jsonl"\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recipe_needs_nothing_but_sources(tmp_path: Path) -> None:
    recipe = load_recipe(write(tmp_path, MINIMAL))
    assert recipe.sources[0].globs == ("in/*.jsonl",)
    assert recipe.sample == 1.0
    assert recipe.training is None


def test_a_resolved_recipe_reads_back_as_itself(tmp_path: Path) -> None:
    text = MINIMAL + '[[stages]]\nuse = "language_v1"\nkeep = ["en", "no"]\n[dedup]\nthreshold = 0.7\n'
    recipe = load_recipe(write(tmp_path, text))
    assert Recipe.model_validate(recipe.model_dump(mode="json", by_alias=True)) == recipe
    assert recipe.stages[0].parameters == {"keep": ["en", "no"]}


@pytest.mark.parametrize(
    ("text", "near", "where"),
    [
        ("sed = 1\n" + MINIMAL, "seed", "sed"),
        (MINIMAL + 'domian = "web"\n', "domain", "sources.0.domian"),
        (MINIMAL + "[dedup]\ntreshold = 0.8\n", "threshold", "dedup.treshold"),
        (MINIMAL + "[shards]\nheldout_share = 0.1\n", "held_out_share", "shards.heldout_share"),
        (MINIMAL + "[model]\nlayer = 2\n", "layers", "model.layer"),
        (MINIMAL + '[schedule]\ntokens = 9\n[[schedule.stages]]\nname = "base"\n', "phases", "schedule.stages"),
        (MINIMAL + '[[domains]]\nname = "a"\nhost = ["x"]\nhosts = ["x"]\n', "hosts", "domains.0.host"),
    ],
)
def test_an_unknown_key_names_the_nearest_and_its_place(tmp_path: Path, text: str, near: str, where: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, text))
    assert f"did you mean {near!r}?" in caught.value.what
    assert caught.value.place.endswith(f"key {where}")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("sample = 0.0\n" + MINIMAL, "key sample"),
        ("sample = 1.5\n" + MINIMAL, "key sample"),
        ("seed = -1\n" + MINIMAL, "key seed"),
        (MINIMAL + 'domain = "../up"\n', "sources.0.domain"),
        (MINIMAL + 'format = "arc"\n', "sources.0.format"),
        (MINIMAL + '[[lm]]\nlanguage = "en"\n', "lm.0"),
        (MINIMAL + '[[lm]]\nlanguage = "en"\nmodel = "a"\ncorpus = ["b"]\n', "lm.0"),
        (MINIMAL + "[[stages]]\nkeep = []\n", "stages.0.use"),
        ("name = 'x'\n", "sources"),
        ("sources = []\n", "sources"),
        (MINIMAL + "[training]\nseed = 1\n", ""),
        ('[[sources]]\ndomain = "web"\n', "sources.0"),
        ("leave_out_missing = 2\n" + MINIMAL, "key leave_out_missing"),
    ],
)
def test_a_wrong_value_names_its_place(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(UserError) as caught:
        load_recipe(write(tmp_path, text))
    assert where in caught.value.place


def test_sources_are_named_by_globs_lists_or_both(tmp_path: Path) -> None:
    text = '[[sources]]\nlist = "a.txt"\n[[sources]]\nglob = ["b", "c"]\nlist = ["d", "e"]\n'
    first, second = load_recipe(write(tmp_path, text)).sources
    assert (first.globs, first.lists) == ((), ("a.txt",))
    assert (second.globs, second.lists) == (("b", "c"), ("d", "e"))


def test_what_is_gone_is_left_out_by_a_word_on_the_command_line(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    assert not load_recipe(path).leave_out_missing
    assert load_recipe(path, ["leave_out_missing=true"]).leave_out_missing


def test_a_long_value_is_shown_cut() -> None:
    with pytest.raises(UserError) as caught:
        parse_recipe({"sources": "x" * 10_000}, "here")
    assert len(caught.value.what) < 300


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"sources = [", "not TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"a = 1\na = 2\n", "not TOML"),
        (b"x = " + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_recipe_is_a_clear_error(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=what) as caught:
        load_recipe(path)
    assert str(path) in caught.value.place


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_recipe_that_cannot_be_read_is_a_clear_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot read the recipe"):
        load_recipe(tmp_path / name)


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("seed=7", ("seed",), 7),
        ("shards.held_out_share=0.25", ("shards", "held_out_share"), 0.25),
        ("dedup.near=false", ("dedup", "near"), False),
        ("name=with spaces", ("name",), "with spaces"),
        ("name=a=b", ("name",), "a=b"),
        ('name="123"', ("name",), "123"),
        ("sources.0.domain=code", ("sources", 0, "domain"), "code"),
        ('sources.0.glob=["a", "b"]', ("sources", 0, "glob"), ("a", "b")),
        (" seed = 8", ("seed",), 8),
    ],
)
def test_an_override_changes_one_key(tmp_path: Path, override: str, path: tuple[str | int, ...], value: Any) -> None:
    found: Any = load_recipe(write(tmp_path, MINIMAL), [override])
    for part in path:
        found = found[part] if isinstance(part, int) else getattr(found, part)
    assert found == value


def test_an_override_reaches_a_stage_and_the_last_one_wins(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + '[[stages]]\nuse = "language_v1"\nmin_chars = 10\n')
    recipe = load_recipe(path, ["stages.0.min_chars=20", "stages.0.min_chars=30"])
    assert recipe.stages[0].parameters == {"min_chars": 30}


@pytest.mark.parametrize(
    "override",
    [
        "seed",
        "=1",
        "  =1",
        "sources.9.domain=web",
        "sources.x=1",
        "sources.-1.domain=web",
        "seed.deep=1",
        "seed.deep.er=1",
    ],
)
def test_an_override_that_leads_nowhere_is_refused(tmp_path: Path, override: str) -> None:
    path = write(tmp_path, "seed = 1\n" + MINIMAL)
    with pytest.raises(UserError) as caught:
        load_recipe(path, [override])
    assert override.strip() in str(caught.value)


def test_an_override_with_a_misspelt_key_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'held_out_share'"):
        load_recipe(write(tmp_path, MINIMAL), ["shards.held_out_shares=0.1"])


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)),
        max_size=4,
    )
)
def test_a_table_of_anything_else_is_a_users_error(table: dict[str, Any]) -> None:
    with pytest.raises(UserError) as caught:
        parse_recipe(table, "here")
    assert caught.value.place.startswith("here")


@given(st.text(max_size=30))
def test_any_override_is_taken_or_a_users_error(override: str) -> None:
    from pipelines.recipe import _override

    table = tomllib.loads(MINIMAL)
    try:
        _override(table, override)
    except UserError:
        return
    assert "=" in override


def test_a_value_nested_without_end_is_refused_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text('[[sources]]\nglob = "*"\n')
    with pytest.raises(UserError, match="the value of seed is nested too deeply"):
        load_recipe(path, ["seed=" + "[" * 100_000])
