from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from pipelines.inspection import opening
from pipelines.inspection.explain import Explained
from pipelines.inspection.opening import documents, open_chain
from shards.errors import UserError

RECIPE = """
[[sources]]
glob = "web/web-*.jsonl"
[[sources]]
glob = ["books/**/*.jsonl", "tales-*.jsonl"]
domain = "books"
text_key = "body"

[[lm]]
language = "en"
corpus = ["reference.txt"]

[[stages]]
use = "gopher_quality_v2"
min_words = 3
min_stop_words = 0
[[stages]]
use = "perplexity_v1"
max_perplexity = { percentile = 97.0, by = "language" }
"""
WEB = b'{"text": "one two"}\n{"text": "one two three four"}\n{"te\n'


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe and its files, without a run."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "reference.txt").write_text("one two three\n")
    for name in ("web/web-a.jsonl", "books/deep/b.jsonl", "elsewhere/tales-1.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(WEB if "web" in name else b'{"body": "four"}\n')
    return tmp_path / "recipe.toml"


def explained(recipe: Path, file: str, *overrides: str, **settings: Any) -> list[Explained]:
    stdin = settings.pop("stdin", io.BytesIO())
    return list(documents(open_chain(str(recipe), overrides), file, stdin, **settings))


def ends(found: Sequence[Explained]) -> list[tuple[str, str | None]]:
    return [(one.verdict, one.end and one.end.reason) for one in found]


WEB_ENDS = [("dropped", "too_few_words"), ("open", None), ("failed", "bad_json")]


def test_a_recipe_alone_says_what_only_a_run_knows(recipe: Path) -> None:
    opened = open_chain(str(recipe))
    assert [note.split(" ")[0] for note in opened.notes] == ["the", "percentiles"]
    assert "perplexity_v1" in opened.notes[0]
    found = explained(recipe, str(recipe.parent / "web/web-a.jsonl"))
    assert ends(found) == WEB_ENDS
    limits = [one.words for one in found[1].steps[2].scores[0].limits]
    assert limits == ["at most percentile 97 by language: measured by a run"]


def test_a_limit_for_a_language_whose_model_a_run_is_to_fit_is_no_mistake(recipe: Path) -> None:
    limit = "perplexity_v1.min_perplexity={ language = { en = 10.0 } }"
    assert ends(explained(recipe, str(recipe.parent / "web/web-a.jsonl"), limit)) == WEB_ENDS


def test_overrides_are_those_of_a_run(recipe: Path) -> None:
    found = explained(recipe, str(recipe.parent / "web/web-a.jsonl"), "gopher_quality_v2.min_words=5")
    assert ends(found)[:2] == [("dropped", "too_few_words")] * 2


@pytest.mark.parametrize("name", ["books/deep/b.jsonl", "elsewhere/tales-1.jsonl"])
def test_a_file_is_read_as_the_table_says_that_names_it(recipe: Path, name: str) -> None:
    (found,) = explained(recipe, str(recipe.parent / name))
    assert (found.domain, found.text) == ("books", "four")
    (other,) = explained(recipe, str(recipe.parent / name), position=0)
    assert other.end is not None
    assert (other.domain, other.end.reason) == ("web", "missing_text")


def test_standard_input_is_read_as_a_file_is(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_PIECE_BYTES", 7)
    assert ends(explained(recipe, "-", stdin=io.BytesIO(WEB))) == WEB_ENDS
    # Parquet is read from its end.
    table = io.BytesIO()
    pa.parquet.write_table(pa.table({"text": ["one two", "one two three four"]}), table)
    assert ends(explained(recipe, "-", stdin=io.BytesIO(table.getvalue()))) == WEB_ENDS[:2]
    monkeypatch.setattr(opening, "MOST_STDIN_BYTES", len(WEB) - 1)
    with pytest.raises(UserError, match="standard input holds more"):
        explained(recipe, "-", stdin=io.BytesIO(WEB))


def test_no_more_is_judged_than_is_asked_for(recipe: Path) -> None:
    lines = b"".join(json.dumps({"text": f"{n} word"}).encode() + b"\n" for n in range(4100))
    file = recipe.parent / "web/web-b.jsonl"
    file.write_bytes(lines)
    for limit, wanted in ((1, 1), (4050, 4050)):
        found = explained(recipe, str(file), limit=limit)
        assert [one.doc_id for one in found] == list(range(wanted))


@pytest.mark.parametrize(
    ("file", "settings", "message"),
    [
        ("nothing.jsonl", {}, "cannot be opened: No such file"),
        ("web", {}, "cannot be opened"),
        ("web/web-a.jsonl", {"position": 2}, "no sources.2"),
        ("web/web-a.jsonl", {"position": -1}, "no sources.-1"),
    ],
)
def test_mistakes_are_named(recipe: Path, file: str, settings: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        explained(recipe, str(recipe.parent / file), **settings)


def test_what_is_neither_a_recipe_nor_a_run_is_refused(recipe: Path) -> None:
    with pytest.raises(UserError, match="no such recipe or run"):
        open_chain(str(recipe.parent / "nothing"))
    with pytest.raises(UserError, match="no run is here"):
        open_chain(str(recipe.parent / "web"))


def test_a_run_s_sources_are_explained_as_they_were_judged(made: Any, corpus: Any) -> None:
    judged = {row["doc_id"]: row for row in made.judged("verdicts").to_pylist()}
    final = {row["doc_id"]: row for row in made.verdicts()}
    opened = open_chain(str(made.root))
    assert opened.notes == ()
    seen = 0
    for path in sorted(corpus.folder.glob("*.jsonl")):
        for one in documents(opened, str(path), io.BytesIO()):
            row, seen = judged[one.doc_id], seen + 1
            late = final[one.doc_id] if (final[one.doc_id]["dropped_by"] or "").endswith(":late") else row
            assert (one.end._asdict() if one.end else dict.fromkeys(("dropped_by", "reason", "value", "detail"))) == {
                name: late[name]
                for name in ("dropped_by", "reason", "value", "failed", "detail")
                if one.end or name != "failed"
            }
            assert (one.url, one.language, one.domain) == (row["url"], row["language"], final[one.doc_id]["domain"])
            if row["dropped_by"] is None:
                scores = {f"{step.link}.{score.name}": score.value for step in one.steps for score in step.scores}
                assert scores == {name: row[name] for name in row if "." in name and name in scores}
    assert seen == corpus.records
    assert any((row["dropped_by"] or "").endswith(":late") for row in final.values())


def test_a_limit_that_is_another_than_the_run_s_is_not_known(made: Any, corpus: Any) -> None:
    changed = open_chain(str(made.root), ["perplexity_v1.max_perplexity={ percentile = 50 }"])
    assert changed.explainer.cuts is None
    same = open_chain(str(made.root), ["gopher_quality_v2.min_words=1000"])
    assert same.explainer.cuts is not None
    assert same.notes == ("percentiles are those that the run measured, with its own limits",)
    found = list(documents(same, str(corpus.folder / "web-1.jsonl"), io.BytesIO()))
    assert {one.end and one.end.reason for one in found} == {"too_few_words"}


def test_checks_on_what_deduplication_leaves_come_last(run_recipe: Any, corpus: Any, tmp_path: Path) -> None:
    rest = {"use": "gopher_quality_v2", "as": "rest", "min_words": 70}
    table = corpus.recipe(edits=[rest], dedup={"exact": False, "near": False})
    made = run_recipe(tmp_path / "out", table, corpus.folder)
    final = {row["doc_id"]: row for row in made.verdicts()}
    opened = open_chain(str(made.root))
    found = [
        one for path in sorted(corpus.folder.glob("*.jsonl")) for one in documents(opened, str(path), io.BytesIO())
    ]
    assert len(found) == len(final)
    for one in found:
        ended = one.end and (one.end.dropped_by, one.end.reason)
        row = final[one.doc_id]
        assert ended == (row["dropped_by"] and (row["dropped_by"], row["reason"]))
    assert sum(one.end is not None and one.end.dropped_by == "rest" for one in found) > 3
