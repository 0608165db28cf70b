from __future__ import annotations

from shards.training import ModelSettings, TrainSettings
from trainer.calc.fit import LADDER, fewest_ranks, ladder

MODEL = ModelSettings.model_validate({"preset": "1b"})
TRAINING = TrainSettings(bf16="native", micro_batch_rows=4)


def test_the_ladder_ends_at_the_first_measure_that_is_enough() -> None:
    for usable in (10e9, 20e9, 40e9, 200e9):
        rungs = ladder(MODEL, TRAINING, 128_256, 4096, 8, usable)
        assert [rung.fits for rung in rungs[:-1]] == [False] * (len(rungs) - 1)
        assert [rung.measure for rung in rungs] == [measure for measure, _, _ in LADDER][: len(rungs)]
        assert rungs[-1].fits == (rungs[-1].memory.total <= usable)
    assert len(ladder(MODEL, TRAINING, 128_256, 4096, 8, 200e9)) == 1


def test_what_is_one_row_already_is_not_made_smaller() -> None:
    rungs = ladder(MODEL, TrainSettings(bf16="native", micro_batch_rows=1), 128_256, 4096, 8, 1)
    assert "micro_batch_rows = 1" not in [rung.measure for rung in rungs]
    assert "micro_batch_rows = 1" in [rung.measure for rung in ladder(MODEL, TRAINING, 128_256, 4096, 8, 1)]


def test_more_ranks_help_until_activations_are_all_that_is_left() -> None:
    assert fewest_ranks(MODEL, TRAINING, 128_256, 4096, 1e9) is None
    enough = fewest_ranks(MODEL, TRAINING, 128_256, 4096, 8e9)
    assert enough is not None
    assert ladder(MODEL, TRAINING, 128_256, 4096, enough, 8e9)[-1].fits
    assert not ladder(MODEL, TRAINING, 128_256, 4096, enough // 2, 8e9)[-1].fits
