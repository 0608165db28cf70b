from __future__ import annotations

import pytest

from shards.training import ModelSettings
from trainer.calc.cost import cost, flops_per_token


def test_days_and_price() -> None:
    found = cost(flops=8.64e22, gpus=1000, peak_flops=1e15, mfu=0.5, price_per_gpu_hour=2.0)
    assert found.days == pytest.approx(2.0)
    assert found.gpu_hours == pytest.approx(48_000)
    assert found.price == pytest.approx(96_000)


def test_a_token_costs_six_flops_per_parameter_that_multiplies_and_attention() -> None:
    model = ModelSettings(layers=3, width=64, heads=4)
    untied = flops_per_token(model, 100, 128)
    assert untied == 6 * (model.parameters(100) - 100 * 64) + 12 * 3 * 64 * 128
    tied = flops_per_token(model.model_copy(update={"tie_embeddings": True}), 100, 128)
    assert tied == untied  # the one matrix still multiplies
