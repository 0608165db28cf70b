"""Deduplication of real near-duplicates whose exact Jaccard was found by brute force."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from stages.dedup.exact import exact_drops, exact_keys
from stages.dedup.minhash import band_keys, candidate_probability
from stages.dedup.near import PAIR, ShingleSets, jaccard_of_pairs, survivors
from stages.judges.fingerprint import Fingerprint, signature_matrix
from stages.text.shingles import batch_shingles
from tests.stages.support import stage_of

pytestmark = pytest.mark.shared_data

DEDUP = Path(__file__).parents[2].parent / "shared" / "data" / "dedup"
STAGE = Fingerprint()


def rows(name: str) -> list[dict[str, Any]]:
    path = DEDUP / name
    if not path.exists():
        pytest.skip("natural near-duplicates: needs the shared data folder beside the checkout")
    raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(path.read_bytes())).read()
    return [json.loads(line) for line in raw.decode().splitlines()]


class Corpus:
    """Documents numbered in order, through every step of deduplication."""

    def __init__(self, texts: list[str]) -> None:
        self.ids = np.arange(len(texts))
        self.priority = np.zeros(len(texts), np.int64)
        self.offsets, self.hashes = batch_shingles(pa.array(texts), STAGE.shingle_words)
        self.columns = stage_of(Fingerprint).judge(pa.record_batch({"text": pa.array(texts)})).columns
        self.keys = band_keys(signature_matrix(self.columns["signature"]), *STAGE.bands)

    def near(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the pairs of documents that share a band key, their Jaccard, and the removals."""
        shared = (self.keys[:, None, :] == self.keys[None, :, :]).any(axis=2)
        pairs = np.array([tuple(row) for row in np.argwhere(np.triu(shared, 1)).tolist()], PAIR)
        sets = ShingleSets(self.ids, self.priority, self.keys, self.offsets, self.hashes)
        return pairs, self.jaccard(pairs), survivors(sets, STAGE.threshold, 16).removals

    def jaccard(self, pairs: np.ndarray) -> np.ndarray:
        return jaccard_of_pairs(pairs, self.ids, self.offsets, self.hashes)

    def candidates(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        found: np.ndarray = (self.keys[a] == self.keys[b]).any(axis=1)
        return found


def test_licences_agree_with_brute_force() -> None:
    licences = rows("spdx_licenses.jsonl.zst")
    number = {row["id"]: at for at, row in enumerate(licences)}
    corpus = Corpus([row["text"] for row in licences])
    lines = [line.split("\t") for line in (DEDUP / "spdx_pairs.tsv").read_text().splitlines()]
    oracle = np.array([(number[a], number[b]) for a, b, _ in lines], PAIR)
    jaccard = corpus.jaccard(oracle)
    assert (jaccard >= 0.8).sum() == 256
    assert (jaccard == 1).sum() == 42
    # Python's \w+ takes a Chinese clause for one word; these licences are partly Chinese.
    plain = np.array([not a.startswith("MulanPSL") for a, _, _ in lines])
    assert np.abs(jaccard - [float(line[2]) for line in lines])[plain].max() < 6e-4
    found = corpus.candidates(oracle["a"], oracle["b"])
    assert found[jaccard >= 0.8].mean() >= 0.95
    assert found[jaccard == 1].all()

    pairs, verified, removals = corpus.near()
    assert {tuple(p) for p in pairs[verified >= 0.8].tolist()} == {
        (min(p), max(p)) for p in oracle[found & (jaccard >= 0.8)].tolist()
    }
    assert not set(removals["doc_id"]) & set(removals["witness"])
    assert (corpus.jaccard(np.array(removals[["doc_id", "witness"]].tolist(), PAIR)) >= 0.8).all()
    # What stays is free of verified near duplicates.
    stays = ~np.isin(pairs[verified >= 0.8]["b"], removals["doc_id"]) & ~np.isin(
        pairs[verified >= 0.8]["a"], removals["doc_id"]
    )
    assert not stays.any()

    drops, statistics = exact_drops([exact_keys(corpus.columns["content_hash"], corpus.priority, corpus.ids)])
    assert len(drops) == 23
    assert statistics.keys == 607
    folded = [" ".join(row["text"].split()) for row in licences]
    assert all(folded[d] == folded[w] and w < d for d, w in drops.tolist())


def test_snapshots_of_paragraphs_follow_the_s_curve() -> None:
    snapshots = rows("wiki_snapshots_2016_2019.jsonl.zst")
    corpus = Corpus([row[year] for row in snapshots for year in ("text_2016", "text_2019")])
    pairs = np.array([(2 * at, 2 * at + 1) for at in range(len(snapshots))], PAIR)
    jaccard = corpus.jaccard(pairs)
    oracle = np.array([row["jaccard_word5"] for row in snapshots])
    # Combining marks and format characters belong to words here, but not to Python's \w.
    assert (np.abs(jaccard - oracle) < 1e-3).mean() > 0.95
    found = corpus.candidates(pairs["a"], pairs["b"])
    for low, high in ((0.8, 1.01), (0.5, 0.8), (0.2, 0.5)):
        inside = (jaccard >= low) & (jaccard < high)
        expected = candidate_probability(jaccard[inside], *STAGE.bands)
        spread = np.sqrt((expected * (1 - expected)).sum())
        assert abs(found[inside].sum() - expected.sum()) < 4 * spread + 1
    assert found[jaccard >= 0.8].mean() >= 0.95

    _, _, removals = corpus.near()
    removed = set(removals["doc_id"].tolist())
    partner = {2 * at + 1 for at in np.flatnonzero(found & (np.round(jaccard, 4) >= 0.8)).tolist()}
    assert partner <= removed | {w + 1 for w in removed}
    assert (removals["jaccard"] >= 0.8).all()


def test_editions_of_a_book_meet_and_books_do_not() -> None:
    editions = rows("gutenberg_editions.jsonl.zst")
    corpus = Corpus([row["text"] for row in editions])
    cluster = [row["cluster"] for row in editions]
    _, _, removals = corpus.near()
    assert all(cluster[r["doc_id"]] == cluster[r["witness"]] for r in removals)
    assert len(removals) == len(editions) - len(set(cluster))


def test_releases_of_a_file() -> None:
    files = rows("python_package_versions.jsonl.zst")
    corpus = Corpus([row["text"] for row in files])
    by_cluster: dict[str, list[int]] = {}
    for at, row in enumerate(files):
        by_cluster.setdefault(row["cluster"], []).append(at)
    releases = np.array([p for at in by_cluster.values() for p in itertools.combinations(at, 2)], PAIR)
    jaccard = corpus.jaccard(releases)
    assert len(releases) == 34
    assert (jaccard < 0.8).sum() == 4
    drops, _ = exact_drops([exact_keys(corpus.columns["content_hash"], corpus.priority, corpus.ids)])
    _, _, removals = corpus.near()
    assert set(drops["doc_id"]) <= set(removals["doc_id"])
    assert set(removals["doc_id"]) >= set(releases["b"][jaccard >= 0.85])
