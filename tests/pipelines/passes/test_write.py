from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from pipelines.beam.base import Inputs
from pipelines.beam.isolation import is_isolated, isolate
from pipelines.beam.runners import LocalRunner
from pipelines.passes import grouping
from pipelines.passes.write import held_out_mask, without_unfit
from pipelines.run import Run
from shards.catalog import SUBSETS
from shards.errors import UserError
from shards.reader import ShardSet
from shards.schema import split_doc_id
from shards.store import Store
from stages.failing import Failure
from tests.shards.small_shards import tokens_of


def served(made: Any) -> list[dict[str, Any]]:
    """Every document of the shards with where it lies, its trace and its text from the tokens."""
    shards = ShardSet.open(made.root / "shards")
    shards.verify()
    entry = made.entry("tokenizer", "tokenizer")
    tokenizer = Tokenizer.from_str(made.run.store.read_bytes(entry.path).decode())
    found = []
    for domain in shards.catalog.domains:
        for subset in SUBSETS:
            for document in range(shards.documents(domain, subset)):
                tokens = tokens_of(shards, domain, subset, document).tolist()
                assert tokens[-1] == shards.catalog.end_of_text
                assert shards.catalog.end_of_text not in tokens[:-1]
                row = {"domain": domain, "subset": subset, "text": tokenizer.decode(tokens[:-1])}
                found.append(row | {"trace": shards.trace(domain, subset, document, len(tokens) - 1)})
    return found


@pytest.fixture(scope="module")
def documents(made: Any) -> list[dict[str, Any]]:
    return served(made)


def test_every_survivor_is_served_once_and_nothing_else(made: Any, documents: list[dict[str, Any]]) -> None:
    kept = [row["doc_id"] for row in made.verdicts() if row["dropped_by"] is None]
    assert sorted(document["trace"]["doc_id"] for document in documents) == kept


def test_tokens_lead_to_their_document_url_and_text(made: Any, corpus: Any, documents: list[dict[str, Any]]) -> None:
    verdicts = {row["doc_id"]: row for row in made.verdicts()}
    for document in documents:
        trace = document["trace"]
        verdict = verdicts[trace["doc_id"]]
        assert document["text"] == corpus.texts[trace["url"]]
        for name in ("url", "language", "source_index", "offset"):
            assert trace[name] == verdict[name]
        assert document["domain"] == verdict["domain"]
        assert trace["source_index"] == split_doc_id(trace["doc_id"])[0]


def test_the_offset_leads_to_the_line_of_the_source(made: Any, corpus: Any, documents: list[dict[str, Any]]) -> None:
    for document in documents[::7]:
        trace = document["trace"]
        data = (corpus.folder / made.run.plan.path_of(trace["source_index"])).read_bytes()[trace["offset"] :]
        assert json.loads(data.split(b"\n")[0])["url"] == trace["url"]


def test_splits_change_shards_but_no_document(cut_fine: Any, documents: list[dict[str, Any]]) -> None:
    def told(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
        return sorted((row["trace"]["doc_id"], row["domain"], row["subset"], row["text"]) for row in rows)

    assert told(served(cut_fine)) == told(documents)


def test_both_subsets_are_served_and_shards_keep_their_size(made: Any, documents: list[dict[str, Any]]) -> None:
    held = sum(document["subset"] == "held_out" for document in documents)
    assert 0.05 < held / len(documents) < 0.4
    shards = ShardSet.open(made.root / "shards")
    entries = [e for domain in shards.domains for subset in SUBSETS for e in shards.entries(domain, subset)]
    assert len(entries) > 6
    assert all(entry.rows for entry in entries)


def test_counts_agree_everywhere(made: Any, documents: list[dict[str, Any]]) -> None:
    shards = ShardSet.open(made.root / "shards")
    statistics = made.statistics("catalog")
    for subset in SUBSETS:
        tokens = {domain: shards.token_count(domain, subset) for domain in sorted(shards.catalog.domains)}
        assert statistics[subset] == tokens
    languages = [made.statistics("write", unit)["languages"] for unit in made.units("write")]
    assert sum(found["und"]["documents"] for found in languages) == len(documents)
    assert sum(found["und"]["tokens"] for found in languages) == sum(
        shards.token_count(domain, subset) for domain in shards.catalog.domains for subset in SUBSETS
    )


def test_groups_are_consecutive_splits(made: Any, cut_fine: Any) -> None:
    for one in (made, cut_fine):
        groups = one.passes["write"].groups(one.inputs("write"))
        assert [piece.split for group in groups.values() for piece in group] == one.splits
        assert list(groups) == sorted(groups) == list(one.units("write"))


def test_a_group_may_open_the_files_of_its_own_splits_alone(made: Any) -> None:
    work = made.passes["write"]
    groups = work.groups(made.inputs("write"))
    units = made.unit_inputs("write")
    assert list(units) == list(groups)
    for name, unit in units.items():
        for output in (work.documents, work.drops, work.clusters):
            assert list(unit.files(output)) == [
                made.entry(output.of, output.kind, piece.split) for piece in groups[name]
            ]
        assert unit.file(work.tokenizer) == made.entry("tokenizer", "tokenizer")
        assert len(unit.entries) == 4


def test_weighing_groups_reads_the_manifest_once(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = sum(row["text_bytes"] for row in made.verdicts() if row["dropped_by"] is None)
    written = list(made.units("write"))
    reads: list[str] = []
    read_named = Store.read_named
    monkeypatch.setattr(Store, "read_named", lambda store, *paths: reads.append(paths[0]) or read_named(store, *paths))
    # A run that has opened no manifest yet.
    work, run = made.passes["write"], Run(made.workspace, made.run.key, made.run.digests)
    inputs = Inputs(run, work.inputs)
    weights = work.weights(inputs)
    assert list(weights) == work.units(inputs) == written
    assert sum(weights.values()) == expected
    assert len(weights) > 1
    assert [path.split("/")[0] for path in reads] == ["drops"]


def test_an_empty_split_is_no_obstacle(bare: Any) -> None:
    found = served(bare)
    assert len(found) == sum(row["dropped_by"] is None for row in bare.verdicts())
    assert {document["domain"] for document in found} == {"web", "books"}


def shard_bytes(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "shards").rglob("*.arrow"))}


def test_a_split_is_cut_into_units_and_shards_are_the_same_bytes_for_any_number_of_workers(
    corpus: Any, run_recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "MIN_UNIT_BYTES", 4_000)
    table = corpus.recipe(split_bytes=10_000_000, shards={"held_out_share": 0.2})
    one = run_recipe(tmp_path / "1", table, corpus.folder, LocalRunner(1))
    with LocalRunner(2) as runner:
        two = run_recipe(tmp_path / "2", table, corpus.folder, runner)
    assert shard_bytes(one.root) == shard_bytes(two.root)
    assert len(one.splits) == 1
    groups = one.passes["write"].groups(one.inputs("write"))
    assert len(groups) > 2
    ids = sorted(document["trace"]["doc_id"] for document in served(one))
    assert ids == [row["doc_id"] for row in one.verdicts() if row["dropped_by"] is None]


def hashed(number: int) -> bytes:
    return np.random.default_rng(number).bytes(16)


@settings(deadline=None, max_examples=40)
@given(
    ids=st.lists(st.integers(0, 50), unique=True, max_size=20),
    members=st.dictionaries(st.integers(0, 50), st.integers(100, 103), max_size=20),
    seed=st.integers(0, (1 << 63) - 1),
)
def test_whole_clusters_are_held_out_together(ids: list[int], members: dict[int, int], seed: int) -> None:
    ids, inside = sorted(ids), sorted(members)
    batch = pa.RecordBatch.from_pydict(
        {"doc_id": pa.array(ids, pa.int64()), "content_hash": pa.array(map(hashed, ids), pa.binary(16))}
    )
    clusters = pa.table(
        {
            "doc_id": pa.array(inside, pa.int64()),
            "cluster_hash": pa.array([hashed(members[one]) for one in inside], pa.binary(16)),
        }
    )
    held = dict(zip(ids, held_out_mask(batch, clusters, 0.5, seed).tolist(), strict=True))
    alone = dict(zip(ids, held_out_mask(batch, clusters.slice(0, 0), 0.5, seed).tolist(), strict=True))
    for cluster in set(members.values()):
        assert len({held[one] for one in ids if members.get(one) == cluster}) <= 1
    assert all(held[one] == alone[one] for one in ids if one not in members)
    more = held_out_mask(batch, clusters, 0.7, seed)
    assert all(more[np.array(list(held.values()), np.bool_)])
    assert not held_out_mask(batch, clusters, 0.0, seed).any()
    parts = [held_out_mask(batch.slice(*cut), clusters, 0.5, seed) for cut in ((0, 3), (3,))]
    assert np.concatenate(parts).tolist() == list(held.values())


def test_survivors_that_resemble_one_removed_document_are_held_out_together(
    run_recipe: Any, small_text: Any, tmp_path: Path
) -> None:
    # Two ends that differ in eight shingles each from the middle, and too much from each other.
    pairs = []
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "a.jsonl").open("w") as out:
        for seed in range(30):
            words = small_text(seed, 60).replace("\n", " ").split()
            head, tail = [f"h{seed}", *words[1:]], [*words[:-2], f"t{seed}", words[-1]]
            for name, text in (("head", head), ("tail", tail), ("middle", words)):
                out.write(json.dumps({"url": f"http://{name}.example/{seed}", "text": " ".join(text)}) + "\n")
            pairs.append((f"http://head.example/{seed}", f"http://tail.example/{seed}"))
    recipe = {
        "sources": [{"glob": "a.jsonl"}],
        "dedup": {"threshold": 0.93},
        "tokenizer": {"vocab_size": 300},
        "shards": {"held_out_share": 0.4},
    }
    made = run_recipe(tmp_path / "out", recipe, tmp_path / "in")
    where = {document["trace"]["url"]: document["subset"] for document in served(made)}
    both = [pair for pair in pairs if all(url in where for url in pair)]
    assert len(both) > 10
    assert all(where[one] == where[other] for one, other in both)
    assert {where[one] for one, _ in both} == set(SUBSETS)


def test_no_survivor_is_a_clear_error(made: Any, corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    nothing = corpus.recipe(stages=[{"use": "gopher_quality_v2", "min_words": 9_999}], lm=None)
    with pytest.raises(UserError, match="no document survived, so there is nothing to fit a tokeniser on"):
        run_recipe(tmp_path / "out", nothing, corpus.folder)
    entry = made.entry("tokenizer", "tokenizer")
    with pytest.raises(UserError, match="no training token survived"):
        run_recipe(tmp_path / "out", nothing | {"tokenizer": {"file": str(made.root / entry.path)}}, corpus.folder)


def test_documents_that_failed_in_the_fit_have_no_text_to_encode() -> None:
    unfit = pa.table({"doc_id": pa.array([2, 9], pa.int64()), "reason": ["killed_process"] * 2, "detail": ["a", "b"]})
    batch = pa.record_batch({"doc_id": pa.array([1, 2, 3], pa.int64()), "text": ["x", "y", "z"]})
    (batch,) = isolate(iter([batch]))
    found, failures = without_unfit(batch, unfit)
    assert found.to_pydict() == {"doc_id": [1, 2, 3], "text": ["x", "", "z"]}
    assert failures == {1: Failure("killed_process", "a")}
    assert is_isolated(found)
    assert without_unfit(batch, unfit.slice(0, 0)) == (batch, {})
