from __future__ import annotations

import torch

from shards.training import TrainSettings
from trainer.optimizer import build_optimizer
from trainer.optimizers.average import Averaged
from trainer.optimizers.base import Masters


def test_the_average_follows_the_weights_and_not_a_bad_step() -> None:
    rows = {"head.weight": torch.ones(2, 3)}
    settings = TrainSettings(optimizer="sgd", momentum=0.0, weight_decay=0.0, ema_decay=0.75)
    optimizer = build_optimizer(Masters(rows, {"head.weight": torch.Size([2, 3])}), settings)
    assert isinstance(optimizer, Averaged)
    expected, weight = 1.0, 1.0
    for gradient, ok in ((2.0, True), (float("nan"), False), (-1.0, True)):
        optimizer.step({"head.weight": torch.full((2, 3), gradient)}, 0.5, torch.tensor(1.0), torch.tensor(ok))
        if ok:
            weight -= 0.5 * gradient
            expected = 0.75 * expected + 0.25 * weight
        assert torch.allclose(rows["head.weight"], torch.full((2, 3), weight))
        assert torch.allclose(optimizer.rows["head.weight"], torch.full((2, 3), expected))
    assert "average.head.weight" in optimizer.state()
    assert optimizer.updates == 2
