from __future__ import annotations

import math

import pytest

from shards.training import ModelSettings
from trainer.calc.cost import flops_per_token
from trainer.lines import first_loss_note, model_flops_utilisation, table, timing_line


@pytest.mark.parametrize(("offset", "warns"), [(0.0, False), (0.4, False), (-0.6, True), (3.0, True), (math.nan, True)])
def test_a_first_loss_far_from_that_of_an_untrained_model_is_a_warning(offset: float, warns: bool) -> None:
    assert first_loss_note(math.log(300) + offset, 300).startswith("warning") == warns


def test_mfu_is_what_the_model_does_over_what_all_ranks_could() -> None:
    model = ModelSettings(layers=2, width=64, heads=2)
    each = flops_per_token(model, 100, 32)
    assert model_flops_utilisation(model, 100, 32, 500.0, 1_000 * each, 4) == pytest.approx(0.125)
    assert timing_line(3, 0.5, 64.0, None) == {"step": 3, "seconds": 0.5, "tokens_per_second": 64.0}
    assert timing_line(3, 0.5, 64.0, 0.125)["mfu"] == 0.125


def test_losses_become_plain_values() -> None:
    assert table({"web": (1.5, 3)}) == {"web": {"loss": 1.5, "targets": 3}}
