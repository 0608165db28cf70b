from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import xxhash

from pipelines.passes.keys import alive_keys, priorities_of
from shards.schema import split_doc_id


def test_every_record_is_one_row_in_order(made: Any, corpus: Any) -> None:
    ids = made.judged("verdicts").column("doc_id").to_pylist()
    assert ids == sorted(set(ids))
    assert len(ids) == corpus.records
    for source, records in Counter(split_doc_id(doc_id)[0] for doc_id in ids).items():
        assert [split_doc_id(doc_id)[1] for doc_id in ids if doc_id >> 32 == source] == list(range(records))


def test_bad_lines_are_counted_with_their_reason_and_place(made: Any, corpus: Any) -> None:
    bad = [row for row in made.judged("verdicts").to_pylist() if row["dropped_by"] == "read"]
    assert Counter(row["reason"] for row in bad) == corpus.bad
    assert all(row["failed"] == (row["reason"] != "empty") for row in bad)
    assert all(row["detail"] for row in bad if row["failed"])
    data = (corpus.folder / "web-0.jsonl").read_bytes()
    there = [(data[row["offset"] :].split(b"\n")[0], row["reason"]) for row in bad]
    assert there == corpus.bad_lines
    assert sorted(row["doc_id"] & 0xFFFFFFFF for row in bad) == list(range(3, 10))


def test_documents_are_the_kept_rows_with_text_and_verdicts_have_none(made: Any) -> None:
    verdicts, documents, keys = (made.judged(kind) for kind in ("verdicts", "documents", "keys"))
    kept = verdicts.filter(pc.is_null(verdicts.column("dropped_by")))
    assert documents.column("doc_id").equals(kept.column("doc_id"))
    assert keys.column("doc_id").to_pylist() == kept.column("doc_id").to_pylist()
    assert not {"text", "payload", "signature"} & set(verdicts.column_names)
    assert documents.column("text").null_count == 0
    assert pc.binary_length(documents.column("text")).to_pylist() == keys.column("text_bytes").to_pylist()


def test_texts_are_those_of_the_source(made: Any, corpus: Any) -> None:
    for row in made.judged("documents").select(["url", "text"]).to_pylist():
        assert row["text"] == corpus.texts[row["url"]]


def test_sources_are_told_with_the_digest_of_what_was_read(made: Any, corpus: Any) -> None:
    told = made.run.manifest("judge").table("sources").to_pylist()
    planned = {source.index: (split.name, source.path) for split in made.run.plan.splits for source in split.sources}
    assert [row["source_index"] for row in told] == sorted(planned)
    for row in told:
        split, path = planned[row["source_index"]]
        assert row["unit"] == split
        assert row["digest"] == xxhash.xxh3_128_hexdigest((corpus.folder / path).read_bytes())


def test_domains_follow_the_hosts_and_stages_keep_to_theirs(made: Any) -> None:
    rows = made.verdicts()
    for row in rows:
        library = (row["url"] or "").startswith("http://library.example/")
        wiki = row["host"] == "en.wiki.example"
        assert row["domain"] == ("wiki" if wiki else "books" if library else "web")
    assert Counter(row["domain"] for row in rows)["wiki"] == 12
    (short,) = [row for row in rows if row["dropped_by"] == "gopher_quality_v2"]
    assert (short["url"], short["reason"], short["value"]) == ("http://short.example/", "too_few_words", 4.0)


def test_priorities_are_those_of_the_recipe(made: Any) -> None:
    work, store = made.passes["exact_keys"], made.run.store
    domains = {row["doc_id"]: row["domain"] for row in made.verdicts()}
    seen: dict[str, set[int]] = {}
    for unit in made.unit_inputs("exact_keys").values():
        for entry, sources in zip(unit.files(work.keys), unit.detail["sources"], strict=True):
            table = alive_keys(store, entry, None, ["doc_id", "source_index"])
            found = priorities_of(store, table, (work.labels, sources), None)
            for doc_id, priority in zip(table.column("doc_id").to_pylist(), found.tolist(), strict=True):
                seen.setdefault(domains[doc_id], set()).add(priority)
    assert seen == {"books": {0}, "web": {1}, "wiki": {1}}
    # They are joined from the plan: no file holds them, so none changes with them.
    for kind in ("keys", "documents", "verdicts"):
        assert not {"priority", "licence", "domain"} & set(made.judged(kind).column_names)


def test_dropped_texts_can_be_read(made: Any) -> None:
    samples = made.judged("samples").to_pylist()
    assert [row["text"] for row in samples] == ["Too short by far."]
    assert [(row["dropped_by"], row["reason"]) for row in samples] == [("gopher_quality_v2", "too_few_words")]


def test_pages_of_a_recipe_that_extracts_none_are_counted_and_not_kept(run_recipe: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pages = [(kind, b"<p>" + b"word " * 9 * n) for n, kind in enumerate((b"html", b"plain", b"html"), start=1)]
    with (tmp_path / "in" / "a.warc").open("wb") as out:
        for number, (kind, body) in enumerate(pages):
            http = b"HTTP/1.1 200 OK\r\nContent-Type: text/%b\r\n\r\n%b" % (kind, body)
            head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://w.example/%d\r\n" % number
            head += b"Content-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n" % len(http)
            out.write(head + http + b"\r\n\r\n")
    recipe = {"sources": [{"glob": "a.warc"}], "tokenizer": {"vocab_size": 300}, "shards": {"held_out_share": 0.0}}
    rows = run_recipe(tmp_path / "out", recipe, tmp_path / "in").verdicts()
    assert [(row["dropped_by"], row["reason"]) for row in rows] == [
        ("read", "unsupported_media"),
        (None, None),
        ("read", "unsupported_media"),
    ]
    assert rows[0]["detail"] == "no stage of the recipe took text from it"


def test_units_are_the_splits_of_the_plan(made: Any) -> None:
    assert list(made.units("judge")) == made.splits
    assert len(made.splits) == 4
    units = made.unit_inputs("judge")
    assert list(units) == made.splits
    sources = {split.name: [source.path for source in split.sources] for split in made.run.plan.splits}
    assert {name: [row[1] for row, _ in unit.detail] for name, unit in units.items()} == sources
