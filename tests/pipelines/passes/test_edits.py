"""A run with a second chain: what is edited, what is judged of the rest, and that all readers see the same text."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipelines import cli
from pipelines.beam import isolation
from pipelines.beam.child import ChildDiedError
from pipelines.beam.runners import LocalRunner
from pipelines.commands.inspect import _edit_lines
from pipelines.inspection import documents as inspected
from pipelines.inspection.funnel import edited, recounted, report
from pipelines.inspection.integrity import verify
from pipelines.inspection.scores import histograms, histograms_by
from pipelines.inspection.verdicts import verdicts
from pipelines.passes.edits import edit, with_marks
from pipelines.run import Run
from pipelines.tables import read_batches
from pipelines.view import documents, view_files
from shards.errors import UserError
from shards.reader import ShardSet
from stages.base import Stage
from stages.edits import EDITS, apply_edits, require_valid
from stages.failing import KILLED_PROCESS
from stages.judges.extract_html import ExtractHtml
from stages.judges.gopher_quality import GopherQuality
from stages.judges.repeated_lines import RepeatedLines
from tests.pipelines.conftest import sentences
from tests.pipelines.support import content, finished_run, flip, redone
from tests.shards.small_shards import tokens_of
from tests.stages.editors import Replacer
from tests.stages.editors import documents as batch_of
from tests.stages.text.repeats import plain_repeated

MENU = "Start here | Our products | About this site | Contact"
REPLACER = "tests.stages.editors:Replacer"
EARLY = {"use": REPLACER, "as": "early", "pattern": "secret ", "replacement": "", "raises_on": ""}
EDITING = [
    {"use": REPLACER, "as": "mask", "pattern": r"\d{4,}", "replacement": "<número>", "raises_on": ""},
    {"use": "repeated_lines_v1"},
    {"use": "gopher_quality_v2", "as": "left", "min_words": 60},
    {"use": REPLACER, "as": "late", "pattern": "boom|Never", "max_found": 0},
]


def text_of(index: int) -> str:
    """A page with a menu above and below it; some have numbers, some little else than the menu, one breaks a stage."""
    rng = random.Random(index)
    lines = sentences(index, 150 if index % 5 else 30).splitlines()
    lines[0:0] = [MENU, ""]
    lines += ["", f"secret Call {rng.randrange(10**4, 10**9)} 🙂 now", MENU, f"Call {index}"]
    if index % 5 == 0:
        lines += [MENU] * 30
    if index == 7:
        lines.append("boom")
    if index == 8:
        lines.append("Never")
    return "\n".join(lines)


def plain_edited(text: str) -> str:
    return plain_repeated(re.sub(r"\d{4,}", "<número>", text.replace("secret ", "")), 20, True, True)[0]


TEXTS = {f"http://site.example/{index}": text_of(index) for index in range(60)}


def recipe(**changes: Any) -> dict[str, Any]:
    return {
        "seed": 7,
        "split_bytes": 30_000,
        "sources": [{"glob": "*.jsonl", "domain": "web"}],
        "stages": [EARLY],
        "edits": EDITING,
        "tokenizer": {"vocab_size": 400},
        "shards": {"held_out_share": 0.2, "target_bytes": 8_000},
    } | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    urls = list(TEXTS)
    for number in range(3):
        lines = [json.dumps({"url": url, "text": TEXTS[url]}) for url in urls[number::3]]
        (folder / f"{number}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path, run_recipe: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return run_recipe(tmp_path_factory.mktemp("edits") / "run", recipe(), folder)


def final_texts(made: Any) -> dict[str, str]:
    return {
        row["url"]: row["text"]
        for files in view_files(made.run).values()
        for batch in documents(made.run.store, files)
        for row in batch.to_pylist()
    }


def test_the_final_text_is_what_the_stages_left_one_after_the_other(plain: Any) -> None:
    found = final_texts(plain)
    assert len(found) > 40
    assert found == {url: plain_edited(TEXTS[url]) for url in found}
    assert all(MENU in text and text.count(MENU) == 1 for text in found.values())


def test_what_is_left_is_judged_and_each_drop_is_a_link_at_the_end(plain: Any) -> None:
    whole = report(plain.run)
    assert whole == recounted(plain.run)
    links = {link.name: link for link in whole.stages}
    names = [link.name for link in whole.stages]
    assert names == ["read", "early", "exact_dedup_v1", "near_dedup_v1", "mask", "repeated_lines_v1", "left", "late",
                     "tokenizer"]  # fmt: skip
    for link in whole.stages:
        assert link.seen == link.kept + sum(link.dropped.values()) + link.failed
    assert links["left"].dropped == {"too_few_words": 12}
    assert links["late"].dropped == {"too_much_found": 1}
    assert links["late"].failures == {"stage_error": 1}
    kept = {row["url"] for row in plain.verdicts() if row["dropped_by"] is None}
    assert kept == set(final_texts(plain))
    assert sum(plain.statistics("edits", split)["survivors"] for split in plain.splits) == len(kept)
    sizes = [plain.statistics("edits", split)["survivor_bytes"] for split in plain.splits]
    assert sum(sizes) == sum(len(text.encode()) for text in final_texts(plain).values())


def test_characters_by_reason_add_up_to_the_change_of_every_text(plain: Any) -> None:
    sums = {(one.stage, one.reason): one for one in edited(plain.run)}
    assert list(sums) == [("early", "found"), ("mask", "found"), ("repeated_lines_v1", "repeated_line"),
                          ("late", "found")]  # fmt: skip
    assert (sums["early", "found"].documents, sums["early", "found"].removed_chars) == (60, 60 * len("secret "))
    assert sums["mask", "found"].inserted_chars == 60 * len("<número>")
    change = sum(one.inserted_chars - one.removed_chars for one in sums.values())
    after = {url: plain_edited(text) for url, text in TEXTS.items()}
    after["http://site.example/8"] = after["http://site.example/8"].replace("Never", "#")
    assert change == sum(len(after[url]) - len(TEXTS[url]) for url in TEXTS)
    rows = plain.verdicts()
    for name in ("mask.removed_chars.found", "repeated_lines_v1.removed_chars.repeated_line"):
        link, _, reason = name.split(".")
        assert sum(row[name] for row in rows) == sums[link, reason].removed_chars


def test_scores_of_what_is_left_are_counted_with_the_others(plain: Any) -> None:
    found = {one.column: one for one in histograms(plain.run)}
    rows = plain.verdicts()
    for name in ("early.removed_chars.found", "repeated_lines_v1.removed_chars.repeated_line", "left.words"):
        assert found[name].rows == sum(row[name] is not None for row in rows)
    assert found["left.words"].dropped == 12
    assert found["left.mean_word_chars"].dropped == 0
    wanted = ["doc_id", "source_index", "host", "left.words"]
    for table in verdicts(plain.run, wanted):
        assert {name for name in table.column_names if "." in name} == {"left.words"}


def test_scores_of_what_is_left_are_counted_as_those_before(plain: Any) -> None:
    rows = plain.verdicts()
    whole, groups = histograms(plain.run), histograms_by(plain.run, "all", "domain")
    assert {"early", "mask", "late"} <= {one.link for one in whole}
    for one in whole:
        assert one.rows == sum(row[one.column] is not None for row in rows), one.column
        reasons = {limit.check.reason for limit in one.limits}
        mine = [row for row in rows if row["dropped_by"] == one.link and row["reason"] in reasons and not row["failed"]]
        assert one.dropped == len(mine), one.column
        assert one.rows == sum(group.rows for found in groups.values() for group in found if group.column == one.column)


def test_tokens_in_the_shards_are_of_the_edited_text_and_lead_back(plain: Any) -> None:
    shards = ShardSet.open(plain.root / "shards")
    shards.verify()
    json_text = plain.run.store.read_bytes(plain.entry("tokenizer", "tokenizer").path).decode()
    tokenizer, found = Tokenizer.from_str(json_text), {}
    for subset in ("train", "held_out"):
        for document in range(shards.documents("web", cast(Any, subset))):
            tokens = tokens_of(shards, "web", cast(Any, subset), document).tolist()
            found[shards.trace("web", cast(Any, subset), document)["url"]] = tokenizer.decode(tokens[:-1])
    assert found == final_texts(plain)
    place, one = inspected.traced(plain.run, "web:3:2")
    assert place["url"] == one.url
    assert one.text == plain_edited(TEXTS[str(one.url)])
    assert [edit["edited_by"] for edit in one.edits][:1] == ["mask"]
    judged = TEXTS[str(one.url)].replace("secret ", "").encode()
    for change in one.edits:
        taken = judged[change["start"] : change["end"]].decode()
        assert taken.isdigit() if change["edited_by"] == "mask" else MENU in taken


def test_samples_show_what_a_check_saw(plain: Any) -> None:
    (one,) = inspected.dropped_samples(plain.run, "late/too_much_found", 3, 0)
    assert one.text == plain_edited(TEXTS[str(one.url)]).replace("Never", "#")
    assert one.edits[-1]["edited_by"] == "late"
    assert one.scores["repeated_lines_v1.removed_chars.repeated_line"] > 0
    for one in inspected.dropped_samples(plain.run, "left", 20, 0) + inspected.kept_samples(plain.run, 5, 0):
        assert one.text == plain_edited(TEXTS[str(one.url)])
    (failed,) = inspected.dropped_samples(plain.run, "late/stage_error", 3, 0)
    assert failed.detail == "ValueError: met"


def test_edit_files_are_of_the_judged_text(plain: Any) -> None:
    for split in plain.splits:
        judged = plain.read("judge", "documents", split)
        ids = np.asarray(judged.column("doc_id"))
        edits = pa.concat_tables([pa.Table.from_batches([b]) for b in _batches(plain, split)]).combine_chunks()
        rows = pa.chunked_array([pa.array(np.searchsorted(ids, np.asarray(edits.column("doc_id"))))])
        table = pa.table([rows, *(edits.column(name) for name in EDITS.names[1:])], schema=EDITS)
        (batch,) = table.combine_chunks().to_batches()
        text = judged.column("text").combine_chunks()
        require_valid(text, batch)
        left = dict(zip(judged.column("url").to_pylist(), apply_edits(text, batch).to_pylist(), strict=True))
        finals = final_texts(plain)
        assert {url: left[url] for url in left if url in finals} == {url: finals[url] for url in left if url in finals}


def _batches(made: Any, split: str) -> Iterator[pa.RecordBatch]:
    return read_batches(made.run.store, made.entry("edits", "edits", split))


def test_workers_and_splits_change_no_byte_of_the_shards(
    plain: Any, folder: Path, run_recipe: Any, tmp_path: Path
) -> None:
    again = run_recipe(tmp_path / "two", recipe(), folder, LocalRunner(2))
    assert content(again.root) == content(plain.root)
    whole = run_recipe(tmp_path / "whole", recipe(split_bytes=10_000_000), folder)
    assert len(whole.splits) < len(plain.splits)
    assert final_texts(whole) == final_texts(plain)
    assert [row["reason"] for row in whole.verdicts()] == [row["reason"] for row in plain.verdicts()]


def test_an_edit_that_changes_remakes_what_follows_and_nothing_before(
    plain: Any, folder: Path, run_recipe: Any, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(plain.root, tmp_path / "copy"))
    other = run_recipe(root, recipe(edits=[{"use": "repeated_lines_v1"}]), folder)
    assert redone(other) == {"edits", "tokenizer", "encoder", "write", "catalog"}
    none = run_recipe(root, recipe(edits=[]), folder)
    assert "edits" not in none.notes.ended
    assert not list((root / "edits").rglob("*.arrow"))
    assert edited(none.run)[-1].stage == "early"
    again = run_recipe(root, recipe(), folder)
    assert content(again.root) == content(plain.root)


@pytest.mark.parametrize("kind", ["edits", "drops", "scores"])
def test_damage_is_found_and_its_unit_alone_made_anew(
    plain: Any, folder: Path, run_recipe: Any, tmp_path: Path, kind: str
) -> None:
    copy = Path(shutil.copytree(plain.root, tmp_path / "copy"))
    flip(max((copy / "edits" / kind).iterdir(), key=lambda path: path.stat().st_size))
    run = finished_run(str(copy))
    run.store.repairs = True
    (damage,) = verify(run, lambda _: None)
    assert damage.made_by == "edits"
    again = run_recipe(copy, recipe(), folder)
    assert redone(again) == {"edits"}
    assert again.notes.ended["edits"].startswith("1 unit in")
    assert content(again.root) == content(plain.root)


def test_a_document_that_kills_its_process_fails_alone(
    plain: Any, folder: Path, run_recipe: Any, tmp_path: Path
) -> None:
    deadly = [*EDITING[:-1], {**EDITING[-1], "raises_on": "", "kills_on": "boom"}]
    with LocalRunner(1, protects_driver=True) as runner:
        made = run_recipe(tmp_path / "run", recipe(edits=deadly), folder, runner)
    assert final_texts(made) == final_texts(plain)
    before, after = ({row["url"]: row for row in one.verdicts()} for one in (plain, made))
    changed = {url for url in before if before[url] != after[url]}
    assert changed == {"http://site.example/7"}
    (url,) = changed
    assert after[url]["reason"] == KILLED_PROCESS
    assert not list((made.root / "unfinished" / "edits").rglob("*"))


def test_what_was_edited_is_told(plain: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*options: str) -> str:
        with pytest.raises(SystemExit) as caught:
            cli.main(["inspect", str(plain.root), *options])
        assert not caught.value.code
        return capsys.readouterr().out

    lines = [line.split() for line in said().splitlines()]
    table = lines[lines.index(["Edited", "text"]) :]
    assert table[2:4] == [["early", "found", "60", "420", "0"], ["mask", "found", "60", *table[3][3:]]]
    shown_edit = r"edited by mask/found: bytes \d+-\d+ of the judged text became '<número>'"
    assert re.search(shown_edit, said("--trace", "web:3"))
    assert "more edits" not in said("--trace", "web:3")
    shown = json.loads(said("--json", "--kept", "2"))
    assert shown["edits"] == [vars(one) for one in edited(plain.run)]
    assert shown["kept"][0]["edits"][0]["edited_by"] == "mask"


def test_a_run_that_has_not_edited_yet_shows_what_it_has(plain: Any) -> None:
    names = list(plain.run.digests)
    early = {name: plain.run.digests[name] for name in names[: names.index("edits")]}
    run = Run(plain.workspace, plain.run.key, early)
    whole = report(run)
    assert whole == recounted(run)
    assert [link.name for link in whole.stages][-1] == "near_dedup_v1"
    assert whole.stages[-1].kept == len(TEXTS)
    (one,) = inspected.kept_samples(run, 1, 0)
    assert one.text == TEXTS[str(one.url)].replace("secret ", "")
    assert [one.stage for one in edited(run)] == ["early"]


def test_recipes_that_cannot_be_are_refused(folder: Path, run_recipe: Any, tmp_path: Path) -> None:
    percentile = {"use": "gopher_quality_v2", "min_words": {"percentile": 5}}
    for edits, said in (
        ([percentile], "cannot be a limit in"),
        ([EARLY], "is in the chain twice"),
        ([{"use": "repeated_line_v1"}], "no stage is called"),
        ([{"use": "repeated_lines_v1", "domains": ["wbe"]}], "no document can be of the domain"),
    ):
        with pytest.raises(UserError, match=said):
            run_recipe(tmp_path / "run", recipe(edits=edits), folder)


def test_deduplication_sees_what_a_stage_left(run_recipe: Any, tmp_path: Path) -> None:
    texts = [f"{sentences(number % 9, 60)} Page {number}." for number in range(18)]
    lines = [json.dumps({"url": f"http://site.example/{at}", "text": text}) for at, text in enumerate(texts)]
    (tmp_path / "pages.jsonl").write_text("\n".join(lines), encoding="utf-8")
    use = {"use": REPLACER, "pattern": r" Page \d+\.", "replacement": "", "raises_on": ""}
    made = run_recipe(tmp_path / "run", recipe(stages=[use], edits=[]), tmp_path)
    assert [row["reason"] for row in made.verdicts()] == [None] * 9 + ["exact_duplicate"] * 9
    assert list(final_texts(made).values()) == [sentences(number, 60) for number in range(9)]
    assert "edits" not in made.run.digests


def test_a_model_that_the_run_fits_scores_what_is_left(folder: Path, run_recipe: Any, tmp_path: Path) -> None:
    (folder / "reference.txt").write_text("\n".join(sentences(9000 + i, 24) for i in range(40)), encoding="utf-8")
    made = run_recipe(
        tmp_path / "run",
        recipe(
            lm=[{"language": "und", "corpus": ["reference.txt"], "order": 2}],
            stages=[{"use": "perplexity_v1", "as": "before"}],
            edits=[{"use": "repeated_lines_v1", "min_chars": 5}, {"use": "perplexity_v1", "as": "after"}],
        ),
        folder,
        LocalRunner(1),
    )
    assert {output.of for output in made.passes["edits"].inputs} == {"judge", "drops", "fit_lm"}
    rows = [row for row in made.verdicts() if row["after.perplexity"] is not None]
    assert len(rows) == len(TEXTS)
    for row in rows:
        shorter = row["repeated_lines_v1.removed_chars.repeated_line"] > 0
        assert (row["after.tokens"] < row["before.tokens"]) == shorter
        assert (row["after.perplexity"] == row["before.perplexity"]) == (not shorter)


CHAIN = [
    Replacer(instance="a", pattern="[xy]+", replacement="z🙂"),
    RepeatedLines(min_chars=2),
    GopherQuality(min_words=2, instance="left"),
    Replacer(instance="b", pattern="z", replacement="", max_found=3),
]
PIECES = st.sampled_from(["x", "yx", "z", "the word", "\n", "\n\n", "中", "boom"])


@settings(deadline=None)
@given(st.lists(st.lists(PIECES, max_size=10).map("".join), max_size=6), st.integers(0, 6))
def test_edits_of_a_chain_lead_from_the_judged_to_the_last_text_in_any_batch(texts: list[str], at: int) -> None:
    batch = with_marks(batch_of(cast(Any, texts)))
    chain = cast(list[Stage], CHAIN)
    after, edits = edit(chain, batch)
    require_valid(batch.column("text"), edits)
    assert apply_edits(batch.column("text"), edits).equals(after.column("text"))
    parts = [edit(chain, part) for part in (batch.slice(0, at), batch.slice(at))]
    assert pa.Table.from_batches([part for part, _ in parts]).to_pylist() == after.to_pylist()
    assert sum(found.num_rows for _, found in parts) == edits.num_rows


def test_a_stage_that_rewrites_without_edits_is_refused() -> None:
    page = {"text": None, "payload": b"<p>Some text.</p>", "media_type": "text/html"}
    row = batch_of(["text"]).to_pylist()[0] | page
    batch = pa.RecordBatch.from_pylist([row], batch_of([""]).schema)
    with pytest.raises(UserError, match=r"does not say where it differs.*\[\[stages\]\]"):
        edit([cast(Stage, ExtractHtml())], batch)


class Pretended:
    """A child that calls in this process, and says that it died of ``boom``."""

    def call(self, function: Any, argument: Any, batch: pa.RecordBatch | None = None) -> Iterator[pa.RecordBatch]:
        if batch is not None and any("boom" in text for text in batch.column("text").to_pylist()):
            raise ChildDiedError("SIGKILL")
        yield from function(argument, batch)

    def close(self) -> None:
        """Nothing is open."""


def test_in_isolation_a_document_that_kills_fails_alone_and_the_others_are_edited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "_child", Pretended())
    texts = [f"the word {'x' * (row % 3)} and more" for row in range(40)]
    texts[17] = "boom"
    batch = with_marks(batch_of(cast(Any, texts)))
    chain = cast(list[Stage], CHAIN)
    after, edits = edit(chain, batch, isolated=True)
    assert after.column("reason")[17].as_py() == KILLED_PROCESS
    rest = [row for row in range(40) if row != 17]
    plain_after, plain_edits = edit(chain, batch.take(pa.array(rest)))
    assert after.take(pa.array(rest)).to_pylist() == plain_after.to_pylist()
    columns = ["start", "end", "reason", "replacement"]
    assert edits.select(columns).to_pylist() == plain_edits.select(columns).to_pylist()
    assert 17 not in edits.column("row").to_pylist()


def test_of_many_edits_the_first_are_told_and_the_number_of_the_rest() -> None:
    edit_row = {"start": 1, "end": 4, "reason": "r", "replacement": "", "edited_by": "s"}
    assert _edit_lines([edit_row] * 5)[-1] == "edited by s/r: bytes 1-4 of the judged text removed"
    assert _edit_lines([edit_row] * 7)[4:] == [
        "edited by s/r: bytes 1-4 of the judged text removed",
        "and 2 more edits",
    ]
