from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines import cli


def output(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        cli.main(["inspect", *map(str, arguments)])
    assert not caught.value.code
    return capsys.readouterr().out


def test_scores_are_shown_with_limits_that_the_run_measured(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    table = output(capsys, made.root, "--scores")
    assert "percentile 96 by language" in table
    assert "measured by a run" not in table
    found = json.loads(output(capsys, made.root, "--scores", "--json"))["scores"]
    assert {"gopher_quality_v2.words", "perplexity_v1.perplexity"} < set(found)
    (one,) = json.loads(output(capsys, made.root, "--score", "words", "--json"))["scores"].values()
    assert one["documents"] == sum(bar["documents"] for bar in one["bins"])
    assert "at least 20" in output(capsys, made.root, "--score", "gopher_quality_v2.words")


def test_runs_are_compared(made: Any, cut_fine: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert "dedup.range_bytes" in output(capsys, made.root, "--compare", cut_fine.root)
    found = json.loads(output(capsys, made.root, "--compare", cut_fine.root, "--json"))
    assert (found["moved"], found["same"]) == ([], len(made.verdicts()))
