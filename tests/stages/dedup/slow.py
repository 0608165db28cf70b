"""The slow definition of near-deduplication, which every run must equal, and corpora to try it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stages.dedup.minhash import band_keys, bands_for, signatures
from stages.dedup.near import ShingleSets


class Document(NamedTuple):
    """What decides whether a document stays."""

    priority: int
    keys: tuple[int, ...]
    shingles: frozenset[int]


Documents = Mapping[int, Document]


@dataclass(frozen=True)
class Slow:
    """What became of documents: (witness, Jaccard) of the removed, the smallest id of each cluster, and who met K."""

    removed: dict[int, tuple[int, float]]
    cluster: dict[int, int]
    limited: set[int]


def steps(jaccard: float) -> int:
    return round(jaccard * 10_000)


def buckets(documents: Documents, threshold: float) -> list[list[int]]:
    """The documents that share a key, cut where no pair across can reach the threshold."""
    found = []
    for key in sorted({key for document in documents.values() for key in document.keys}):
        members = sorted((len(one.shingles), name) for name, one in documents.items() if key in one.keys)
        part: list[int] = []
        for at, (size, name) in enumerate(members):
            if at and steps(members[at - 1][0] / size) < steps(threshold):
                found.append(part)
                part = []
            part.append(name)
        found.append(part)
    return found


def slow(documents: Documents, threshold: float, compared_per_key: int) -> Slow:
    """Every document in order against the first kept ones of each of its buckets."""
    parts = buckets(documents, threshold)
    kept: list[list[int]] = [[] for _ in parts]
    removed: dict[int, tuple[int, float]] = {}
    limited, edges = set(), []
    order = sorted(documents, key=lambda name: (documents[name].priority, name))
    for name in order:
        mine = [at for at, part in enumerate(parts) if name in part]
        if any(len(kept[at]) > compared_per_key for at in mine):
            limited.add(name)
        found = []
        for other in {other for at in mine for other in kept[at][:compared_per_key]}:
            a, b = documents[name].shingles, documents[other].shingles
            score = steps(len(a & b) / len(a | b))
            if score >= steps(threshold):
                found.append((-score, order.index(other), other))
        edges += [(name, other) for _, _, other in found]
        if found:
            score, _, witness = min(found)
            removed[name] = (witness, -score / 10_000)
        else:
            for at in mine:
                kept[at].append(name)
    return Slow(removed, components_of(list(documents), edges), limited)


def components_of(vertices: Sequence[int], edges: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Lower labels along edges until nothing changes."""
    label = {vertex: vertex for vertex in vertices}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            low = min(label[a], label[b])
            changed |= label[a] != low or label[b] != low
            label[a] = label[b] = low
    return label


def sets_of(documents: Documents, order: Sequence[int]) -> ShingleSets:
    """Documents in some order, as the fast definition takes them."""
    chosen = [documents[name] for name in order]
    offsets = np.cumsum([0, *(len(one.shingles) for one in chosen)])
    hashes = np.array([h for one in chosen for h in sorted(one.shingles)], np.uint64)
    width = len(chosen[0].keys) if chosen else 3
    keys = np.array([one.keys for one in chosen], np.uint64).reshape(len(chosen), width)
    priority = np.array([one.priority for one in chosen], np.int64)
    return ShingleSets(np.array(order, np.int64), priority, keys, offsets, hashes)


def corpus(seed: int, count: int, threshold: float = 0.8, permutations: int = 112) -> dict[int, Document]:
    """Chains of ever less similar documents, pages of one template, families, copies, and documents of their own."""
    rng = np.random.default_rng(seed)

    def words(size: int) -> np.ndarray:
        return rng.integers(0, 1 << 64, size, dtype=np.uint64)

    def edited(words_of: np.ndarray, edits: int) -> np.ndarray:
        out = words_of.copy()
        out[rng.choice(len(out), min(edits, len(out)), replace=False)] = words(min(edits, len(out)))
        return out

    template, families, chain = words(30), [words(int(rng.integers(20, 80))) for _ in range(3)], words(50)
    sets = []
    for _ in range(count):
        kind = rng.integers(0, 5)
        if kind == 0:
            sets.append(np.concatenate([template, words(30)]))
        elif kind == 1:
            sets.append(edited(families[rng.integers(3)], int(rng.integers(0, 12))))
        elif kind == 2:
            chain = edited(chain, int(rng.integers(1, 8)))
            sets.append(chain)
        elif kind == 3:
            # Part of a family, so that sizes differ.
            family = families[rng.integers(3)]
            sets.append(family[: max(1, int(len(family) * rng.uniform(0.5, 1)))])
        else:
            sets.append(words(int(rng.integers(1, 60))))
    found = [frozenset(one.tolist()) for one in sets]
    offsets = np.cumsum([0, *map(len, found)])
    hashes = np.array([h for one in found for h in sorted(one)], np.uint64)
    keys = band_keys(signatures(offsets, hashes, permutations, 1), *bands_for(threshold, permutations))
    ids = np.sort(rng.choice(10 * count, count, replace=False)).tolist()
    priorities = rng.integers(-1, 2, count).tolist()
    return {
        name: Document(priority, tuple(of), shingles)
        for name, priority, of, shingles in zip(ids, priorities, keys.tolist(), found, strict=True)
    }
