from __future__ import annotations

import tomllib
from pathlib import Path

from pipelines.demo.planting import KEPT_LANGUAGES
from pipelines.demo.recipe import demo_recipe
from pipelines.recipe import Recipe, parse_recipe
from stages.judges.gopher_quality import GopherQuality
from stages.judges.gopher_repetition import GopherRepetition
from stages.judges.language import Language
from stages.judges.perplexity import Perplexity
from stages.judges.url_blacklist import UrlBlacklist
from stages.registry import REGISTRY


def recipe(folder: Path = Path("corpus")) -> Recipe:
    return parse_recipe(tomllib.loads(demo_recipe(folder)), "demo.toml")


def test_the_recipe_is_valid_and_names_registered_stages_with_their_own_parameters() -> None:
    uses = {use.use: use.parameters for use in recipe().stages}
    assert uses.keys() <= REGISTRY.keys()
    for kind in (UrlBlacklist, Language, GopherQuality, GopherRepetition):
        kind(**uses[kind.name])
    Perplexity(**uses["perplexity_v1"], models={"en": "en.arpa"})


def test_what_is_planted_as_wanted_language_is_what_the_recipe_keeps() -> None:
    (language,) = (use for use in recipe().stages if use.use == "language_v1")
    assert sorted(language.parameters["keep"]) == sorted(KEPT_LANGUAGES)


def test_every_path_follows_the_folder() -> None:
    folder = Path("/some/where else")
    moved = recipe(folder)
    paths = [glob for source in moved.sources for glob in source.globs] + list(moved.lm[0].corpus)
    paths += moved.stages[0].parameters["lists"]
    assert all(path.startswith("/some/where else/") for path in paths)
    assert "corpus/" not in demo_recipe(folder)


def test_the_schedule_grows_the_context_and_ends_at_a_rate_of_zero() -> None:
    settings = recipe().schedule
    assert settings is not None
    contexts = [phase.context_tokens for phase in settings.phases]
    assert len(contexts) >= 3
    assert contexts == sorted(contexts)
    assert contexts[0] < contexts[-1]
    assert settings.phases[-1].learning_rate.end == 0.0


def test_no_file_of_the_crawl_is_matched_twice(tmp_path: Path) -> None:
    names = [
        "web-00.warc.gz",
        "broken-off.warc.gz",
        "notes.warc.wet.gz",
        "docs.jsonl.zst",
        "feed-a.jsonl",
        "code.jsonl.gz",
    ]
    (tmp_path / "crawl").mkdir()
    for name in names:
        (tmp_path / "crawl" / name).touch()
    matched = [
        found.name
        for source in recipe().sources
        for glob in source.globs
        for found in tmp_path.glob(glob.removeprefix("corpus/"))
    ]
    assert sorted(matched) == sorted(names)
