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
