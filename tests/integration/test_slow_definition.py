"""Whole runs over chains, templates and families, beside the slow definition of what deduplication leaves."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipelines.beam.runners import BeamRunner, LocalRunner
from pipelines.driver import check, curate
from pipelines.inspection.funnel import duplicates
from pipelines.inspection.verdicts import verdicts
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.workspace import Workspace
from stages.dedup.minhash import band_keys, bands_for
from stages.judges.fingerprint import signature_matrix
from tests.pipelines.conftest import make_run
from tests.pipelines.support import Silent, content
from tests.stages.dedup.slow import Document, slow

pytestmark = pytest.mark.integration

THRESHOLD = 0.8


def texts(seed: int, count: int) -> list[str]:
    """Chains of ever less similar texts, pages of one template, families, copies, and texts of their own."""
    rng = random.Random(seed)

    def words(number: int) -> list[str]:
        return [f"w{rng.randrange(10**9)}" for _ in range(number)]

    def edited(old: list[str], edits: int) -> list[str]:
        new = list(old)
        for at in rng.sample(range(len(new)), min(edits, len(new))):
            new[at] = words(1)[0]
        return new

    template, families, chain = words(40), [words(rng.randrange(60, 160)) for _ in range(3)], words(150)
    found: list[list[str]] = []
    for _ in range(count):
        kind = rng.randrange(6)
        if kind == 0:
            found.append(template + words(40))
        elif kind == 1:
            found.append(edited(rng.choice(families), rng.randrange(4)))
        elif kind == 2:
            chain = edited(chain, rng.randrange(1, 4))
            found.append(chain)
        elif kind == 3:
            family = rng.choice(families)
            found.append(family[: int(len(family) * rng.uniform(0.6, 1))])
        elif kind == 4 and found:
            found.append(rng.choice(found))
        else:
            found.append(words(rng.randrange(1, 60)))
    return [" ".join(one) for one in found]


def write(folder: Path, seed: int, count: int, files: int) -> None:
    folder.mkdir()
    found = texts(seed, count)
    for number in range(files):
        lines = [json.dumps({"text": text}) for text in found[number::files]]
        (folder / f"{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def recipe(**dedup: Any) -> dict[str, Any]:
    sources = [{"glob": "0.jsonl", "priority": 1}, {"glob": "[1-9].jsonl"}]
    return {
        "sources": sources,
        "split_bytes": 20_000,
        "dedup": dedup,
        "tokenizer": {"vocab_size": 300},
        "shards": {"held_out_share": 0.0},
    }


def expected(made: Any, compared_per_key: int) -> tuple[dict[int, tuple[str, int, float]], int]:
    """By the slow definition: (reason, witness, Jaccard) of every duplicate, and how many met ``compared_per_key``."""
    rows = {row["doc_id"]: row["text"] for row in made.judged("documents").select(["doc_id", "text"]).to_pylist()}
    first = made.run.plan.splits[0].sources[0].index
    priority = {name: int(name >> 32 == first) for name in rows}
    groups: dict[str, list[int]] = defaultdict(list)
    for name in rows:
        groups[rows[name]].append(name)
    exact: dict[int, int] = {}
    for group in groups.values():
        kept = min(group, key=lambda name: (priority[name], name))
        exact |= dict.fromkeys(set(group) - {kept}, kept)
    table = made.judged("keys")
    keys = band_keys(signature_matrix(table.column("signature").combine_chunks()), *bands_for(THRESHOLD, 112))
    band_of = dict(zip(table.column("doc_id").to_pylist(), keys.tolist(), strict=True))
    documents = {}
    for name in rows.keys() - exact.keys():
        words = re.findall(r"\w+", rows[name].lower())
        shingles = frozenset(tuple(words[at : at + 5]) for at in range(max(1, len(words) - 4)))
        documents[name] = Document(priority[name], tuple(band_of[name]), shingles)  # type: ignore[arg-type]
    near = slow(documents, THRESHOLD, compared_per_key)
    found = {name: ("near_duplicate", *end) for name, end in near.removed.items()}
    for name, kept in exact.items():
        found[name] = ("exact_duplicate", *near.removed.get(kept, (kept, 1.0)))
    return found, len(near.limited)


def found(run: Run) -> dict[int, tuple[str, int, float]]:
    rows = [row for table in verdicts(run) for row in table.to_pylist() if row["dropped_by"] is not None]
    return {row["doc_id"]: (row["reason"], row["witness"], row["jaccard"]) for row in rows}


@pytest.mark.parametrize(
    ("seed", "dedup"),
    [
        (1, {}),
        (2, {"compared_per_key": 1}),
        (3, {"compared_per_key": 2, "range_bytes": 4_096, "piece_bytes": 64}),
        (4, {"range_bytes": 4_096, "piece_bytes": 16}),
    ],
)
def test_runs_are_equal_to_the_slow_definition(tmp_path: Path, seed: int, dedup: dict[str, int]) -> None:
    write(tmp_path / "in", seed, 260, 5)
    made = make_run(tmp_path / "out", recipe(**dedup), tmp_path / "in")
    assert len(made.splits) > 3
    ends, limited = expected(made, dedup.get("compared_per_key", 16))
    assert len(ends) > 60
    assert found(made.run) == ends
    assert [kind.limited for kind in duplicates(made.run)] == [0, limited]
    assert (limited > 0) == ("compared_per_key" in dedup)


@pytest.mark.parametrize("runner", ["two workers", "Prism"])
def test_any_runner_gives_the_same_bytes(tmp_path: Path, runner: str, request: pytest.FixtureRequest) -> None:
    write(tmp_path / "in", 5, 260, 5)
    table = recipe(compared_per_key=2, range_bytes=4_096, piece_bytes=1_024)
    made = make_run(tmp_path / "out", table, tmp_path / "in")
    workspace = Workspace.of(str(tmp_path / "other"), parse_recipe(table, "t"), str(tmp_path / "in"))
    if runner == "Prism":
        options = ["--runner=PrismRunner", f"--prism_location={request.getfixturevalue('prism')}"]
        curate(workspace, check(workspace), BeamRunner(options), Silent())
    else:
        with LocalRunner(2) as local:
            curate(workspace, check(workspace), local, Silent())
    assert content(tmp_path / "other") == content(made.root)
    assert found(made.run) == expected(made, 2)[0]


def test_splits_and_order_of_files_change_no_survivor(tmp_path: Path) -> None:
    """Cut into other splits, the same documents survive, with the same witnesses."""
    write(tmp_path / "in", 6, 260, 5)
    ends = []
    for number, split_bytes in enumerate((5_000, 30_000, 10_000_000)):
        table = recipe(piece_bytes=256) | {"split_bytes": split_bytes}
        ends.append(found(make_run(tmp_path / f"out-{number}", table, tmp_path / "in").run))
    assert ends[0] == ends[1] == ends[2]
    assert np.unique([end[0] for end in ends[0].values()]).tolist() == ["exact_duplicate", "near_duplicate"]
