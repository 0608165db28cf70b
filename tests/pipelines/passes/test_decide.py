from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.passes.decide import reference_batches
from stages.readers import RECORD

SCORE = "perplexity_v1.perplexity"


def cuts_of(made: Any) -> dict[str, tuple[float, float]]:
    found: dict[str, dict[str, float]] = {}
    for row in made.read("decide", "cuts").to_pylist():
        assert row["link"] == "perplexity_v1"
        found.setdefault(row["group"], {})[row["end"]] = 10.0 ** (row["step"] / 10_000)
    return {group: (ends["min"], ends["max"]) for group, ends in found.items()}


def test_cuts_are_numpys_percentiles_of_the_scores_of_what_no_check_dropped_before(made: Any) -> None:
    judged = made.judged("verdicts")
    alive = judged.filter(pa.compute.is_null(judged.column("dropped_by")))
    scores = alive.column(SCORE).drop_null().to_numpy()
    low, high = (float(np.percentile(scores, p, method="inverted_cdf")) for p in (4.0, 96.0))
    assert list(cuts_of(made)) == ["und"]
    np.testing.assert_allclose(cuts_of(made)["und"], (low, high), rtol=1e-6)
    assert low < high


def test_exactly_what_lies_outside_is_dropped(made: Any) -> None:
    low, high = cuts_of(made)["und"]
    dropped = {"too_plain": 0, "too_chaotic": 0}
    for row in made.verdicts():
        score = row[SCORE]
        if row["dropped_by"] == "perplexity_v1:late":
            assert row["value"] == score
            assert score < low if row["reason"] == "too_plain" else score > high
            dropped[row["reason"]] += 1
        elif row["dropped_by"] is None:
            assert score is None or low * (1 - 1e-6) <= score <= high * (1 + 1e-6)
    assert all(dropped.values())


def test_cuts_do_not_depend_on_the_splits(made: Any, cut_fine: Any) -> None:
    assert cuts_of(cut_fine) == cuts_of(made)


def test_a_recipe_without_percentiles_has_none_of_these_passes(bare: Any) -> None:
    assert not {"histograms", "reference", "decide", "late"} & set(bare.passes)
    assert bare.passes["drops"].late is None


def test_passes_over_keys_are_given_the_marks_of_their_split(made: Any) -> None:
    marks = {unit: entry.path for unit, entry in made.run.files("late", "marks").items()}
    for unit in made.unit_inputs("drops").values():
        assert unit.file(made.passes["drops"].late).path == marks[unit.name]
    for name in ("exact_keys", "near_bands"):
        work = made.passes[name]
        groups = {group.name: group.splits for group in work.splits.groups}
        for unit in made.unit_inputs(name).values():
            assert [entry.path for entry in unit.files(work.late)] == [marks[split] for split in groups[unit.name]]


def test_reference_text_is_a_document_a_line(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("one line\n\n  \nanother é\r\n" + "x" * 5, encoding="utf-8")
    (tmp_path / "b.txt").write_bytes(b"\xff broken")
    batches = list(reference_batches([str(tmp_path / "a.txt"), str(tmp_path / "b.txt")]))
    assert all(batch.schema == RECORD for batch in batches)
    texts = [text for batch in batches for text in batch.column("text").to_pylist()]
    assert texts == ["one line", "another é", "xxxxx", "\ufffd broken"]


def test_reference_text_is_of_the_domains_that_a_stage_judges(corpus: Any, run_recipe: Any, tmp_path: Any) -> None:
    limit = {"percentile": 50.0, "of": ["reference.txt"]}
    stages = [{"use": "gopher_quality_v2", "domains": ["books"], "min_words": 1, "max_words": limit}]
    made = run_recipe(tmp_path / "run", corpus.recipe(stages=stages, lm=None), corpus.folder)
    lines = (corpus.folder / "reference.txt").read_text(encoding="utf-8").splitlines()
    words = [len(re.findall(r"\w+", line)) for line in lines if line.strip()]
    (row,) = made.read("decide", "cuts").to_pylist()
    assert row["step"] == np.percentile(words, 50, method="inverted_cdf")
