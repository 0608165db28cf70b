from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.passes.decide import cut_mask, cuts_in


def cuts_of(made: Any) -> dict[str, tuple[float | None, float | None]]:
    return {row["language"]: (row["low"], row["high"]) for row in made.read("decide", "cuts").to_pylist()}


def test_cuts_are_numpys_percentiles_of_the_raw_scores(made: Any) -> None:
    scores = made.judged("verdicts").column("perplexity").drop_null().to_numpy()
    low, high = (float(np.percentile(scores, p, method="inverted_cdf")) for p in (4.0, 96.0))
    assert cuts_of(made) == {"und": (low, high)}
    assert low < high


def test_exactly_what_lies_outside_is_dropped(made: Any) -> None:
    low, high = cuts_of(made)["und"]
    dropped = {"too_plain": 0, "too_chaotic": 0}
    for row in made.verdicts():
        score = row["perplexity"]
        if row["dropped_by"] == "perplexity_v1":
            assert row["value"] == score
            assert score < low if row["reason"] == "too_plain" else score > high
            dropped[row["reason"]] += 1
        elif row["dropped_by"] is None:
            assert score is None or low <= score <= high
    assert all(dropped.values())


def test_cuts_do_not_depend_on_the_splits(made: Any, cut_fine: Any) -> None:
    assert cuts_of(cut_fine) == cuts_of(made)


def test_a_recipe_without_percentiles_cuts_nothing(bare: Any) -> None:
    assert not bare.run.has("decide")
    (unit, *_) = bare.unit_inputs("drops").values()
    assert cuts_in(bare.run.store, unit, bare.passes["drops"].cuts) == {}


def test_workers_are_given_the_cuts(made: Any) -> None:
    for name in ("exact_ranges", "near_pairs", "drops"):
        for unit in made.unit_inputs(name).values():
            assert cuts_in(made.run.store, unit, made.passes[name].cuts) == cuts_of(made)


def test_masks_keep_bounds_nulls_and_other_languages() -> None:
    table = pa.table(
        {
            "language": ["en", "en", "en", "en", "de", "fr", "en"],
            "perplexity": pa.array([9.9, 10.0, 20.0, 20.1, 5.0, 1.0, None], pa.float64()),
        }
    )
    plain, chaotic = cut_mask(table, {"en": (10.0, 20.0), "de": (None, 4.0)})
    assert np.flatnonzero(plain).tolist() == [0]
    assert np.flatnonzero(chaotic).tolist() == [3, 4]
    for nothing in ({}, {"en": (None, None)}):
        assert not np.any(cut_mask(table, nothing))
    assert not np.any(cut_mask(table.drop_columns(["perplexity"]), {"en": (10.0, 20.0)}))
    assert [len(mask) for mask in cut_mask(table.slice(0, 0), {"en": (10.0, 20.0)})] == [0, 0]
