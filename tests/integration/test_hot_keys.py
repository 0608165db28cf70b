"""Corpora in which one key is in many documents: what deduplication writes and compares grows as the corpus does."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pipelines.inspection.funnel import duplicates
from tests.pipelines.conftest import make_run

pytestmark = pytest.mark.integration

WORDS = 60
PER_FILE = 1_000
PASSES = ("exact_keys", "exact", "near_bands", "near_buckets", "near_components", "near_sets", "near", "duplicates")


def texts(kind: str, count: int) -> list[str]:
    rng = random.Random(kind)

    def words(number: int) -> list[str]:
        return [f"w{rng.randrange(10**9)}" for _ in range(number)]

    base = words(WORDS)
    found = []
    for number in range(count):
        if kind == "equal":
            found.append(base)
        elif kind == "near":
            found.append([*base[:-1], f"end{number}"])
        elif kind == "template":
            # J is about a half: many bands are shared, and all pages are kept.
            found.append(base[: 2 * WORDS // 3] + words(WORDS // 3))
        else:
            # One document in ten is of the template.
            found.append(base[: 2 * WORDS // 3] + words(WORDS // 3) if number % 10 == 0 else words(WORDS))
    return [" ".join(one) for one in found]


def made_of(folder: Path, kind: str, count: int) -> Any:
    (folder / "in").mkdir(parents=True)
    found = texts(kind, count)
    for begin in range(0, count, PER_FILE):
        lines = "".join(json.dumps({"text": text}) + "\n" for text in found[begin : begin + PER_FILE])
        (folder / "in" / f"{begin // PER_FILE:04d}.jsonl").write_text(lines, encoding="utf-8")
    table = {
        "sources": [{"glob": "*.jsonl"}],
        "split_bytes": 1,
        "dedup": {"piece_bytes": 20_000, "range_bytes": 100_000},
        "tokenizer": {"vocab_size": 300},
        "shards": {"held_out_share": 0.0},
    }
    return make_run(folder / "out", table, folder / "in")


@pytest.mark.parametrize("kind", ["equal", "near", "template", "a tenth"])
def test_rows_bytes_and_comparisons_grow_as_documents_do(tmp_path: Path, kind: str) -> None:
    each = []
    counts = (2_000, 10_000)
    for count in counts:
        made = made_of(tmp_path / str(count), kind, count)
        assert len(made.splits) == count // PER_FILE
        exact, near = duplicates(made.run)
        assert exact.removed == (count - 1 if kind == "equal" else 0)
        assert near.removed == (count - 1 if kind == "near" else 0)
        assert (near.limited > 0) == (kind in ("template", "a tenth"))
        files = [e for name in PASSES for m in made.run.manifest(name).markers() for e in m.files.values()]
        compared = sum(marker.statistics["comparisons"] for marker in made.run.manifest("near").markers())
        each.append((compared, sum(entry.rows for entry in files), sum(entry.size for entry in files)))
        # Of a key that all documents have, there is one row for each split.
        if kind == "equal":
            keys = made.run.files("exact_keys", "keys").values()
            assert [entry.rows for entry in keys] == [1] * len(made.splits)
    more = counts[1] / counts[0]
    # Comparisons with a tenth of the documents grow until each of them meets the bound: 16 in each of 16 buckets.
    assert all(compared <= 16 * 16 * count for (compared, *_), count in zip(each, counts, strict=True))
    for few, many in list(zip(*each, strict=True))[kind == "a tenth" :]:
        assert many <= 1.15 * more * few
