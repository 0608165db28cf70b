"""The benchmark runs to its end and prints every case; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SCRIPT = Path(__file__).with_name("bench_stages.py")
SMALLEST = ("--documents", "12", "--stream-tokens", "200000", "--rounds", "1", "--seconds", "0", "--generated")
CASES = {
    "read_warc",
    "read_jsonl",
    "read_parquet",
    "url_blacklist",
    "extract_html",
    "language",
    "gopher_quality",
    "gopher_repetition",
    "perplexity",
    "fingerprint",
    "tokenise",
    "fit_lm",
    "write_arpa",
    "chain",
    "mark",
    "mark_half",
    "apply",
    "encode_batch",
    "decode_batch",
    "exact_dedup",
    "near_candidates",
    "near_verify",
    "components",
    "write_shard",
    "stream_512",
    "stream_2048",
    "stream_8192",
    "train_192",
    "train_768",
}


def test_every_link_is_measured_beside_a_floor() -> None:
    ran = subprocess.run((sys.executable, SCRIPT, *SMALLEST, "--json"), capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    cases = {case["name"]: case for case in result["cases"]}
    assert set(cases) == CASES
    for case in cases.values():
        assert case["documents"] > 0
        assert case["floors"]
        assert all(seconds > 0 for seconds in case["rounds"])
    assert cases["stream_8192"]["tokens"] > 100_000
    assert {"processor", "versions", "commit", "documents"} <= result["machine"].keys()


def test_unknown_case_is_refused_by_name() -> None:
    ran = subprocess.run((sys.executable, SCRIPT, *SMALLEST, "--only", "reed_warc"), capture_output=True, text=True)
    assert ran.returncode == 1
    assert "reed_warc" in ran.stderr


@pytest.mark.parametrize("script", ["bench_peers.py", "bench_write.py"])
def test_a_tree_is_measured_beside_another(script: str) -> None:
    tree = str(SCRIPT.parents[2])
    options = ("--base", tree, "--documents", "30", "--rounds", "1", "--generated")
    ran = subprocess.run(
        (sys.executable, SCRIPT.with_name(script), *options), capture_output=True, text=True, check=True
    )
    labels = [line.split("|")[1].strip() for line in ran.stdout.splitlines() if line.count("|") > 3]
    assert {"ours", "base commit"} <= set(labels)


def test_few_and_many_shards_are_measured_in_one_run() -> None:
    script = SCRIPT.with_name("bench_scale.py")
    sizes = ("--shards", "130", "--documents", "200", "--batch-tokens", "131072", "--rounds", "1", "--steps", "1")
    ran = subprocess.run((sys.executable, script, *sizes, "--json"), capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    assert (result["few"], result["shards"]) == (100, 130)
    assert set(result["tokens per CPU-second"]) == {"2,048", "4,096", "8,192", "32,768"}
    for speeds in result["tokens per CPU-second"].values():
        assert len(speeds) == 8
        assert all(speed > 0 for speed in speeds.values())
    assert len(result["ranks"]) == 2
    assert all(0 < value < 1e4 for rank in result["ranks"] for value in rank.values())


def test_the_stream_is_measured_beside_a_memmap_where_no_peer_is_installed() -> None:
    script = SCRIPT.with_name("bench_loaders.py")
    sizes = ("--documents", "2000", "--tokens", "1000000", "--context", "1024", "--rounds", "1")
    ran = subprocess.run((sys.executable, script, *sizes, "--json"), capture_output=True, text=True, check=True)
    result = json.loads(ran.stdout)
    alone = {"headrace, tokens alone", "memmap, tokens alone"}
    assert set(result) == {"headrace", "memmap, random windows", *alone}
    assert all(found["tokens per CPU-second"] > 0 for found in result.values())
