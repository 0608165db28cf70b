from __future__ import annotations

import math

import pytest
import torch

from trainer.optimizers.base import Elementary, Masters, scaled, settle

YES, NO = torch.tensor(True), torch.tensor(False)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_ok_does_not_spread(bad: float) -> None:
    gradient = torch.tensor([1.0, bad])
    assert scaled(gradient, torch.tensor(bad), NO).tolist() == [0.0, 0.0]
    assert scaled(torch.tensor([1.0, 2.0]), torch.tensor(0.5), YES).tolist() == [0.5, 1.0]
    old = torch.tensor([1.0, 2.0])
    settle(NO, old, gradient)
    assert old.tolist() == [1.0, 2.0]
    settle(YES, old, old + 1)
    assert old.tolist() == [2.0, 3.0]


def test_state_has_the_shape_of_the_whole_and_decay_goes_by_name() -> None:
    rows = {"a.weight": torch.ones(2, 3), "norm.weight": torch.ones(2)}
    masters = Masters(rows, {"a.weight": torch.Size([8, 3]), "norm.weight": torch.Size([8])})
    common = Elementary(masters, 0.5, lambda name: "norm" not in name)
    assert common.decay == {"a.weight": 0.5, "norm.weight": 0.0}
    state = common.like("momentum")["momentum.a.weight"]
    assert (state.tensor.shape, state.shape, state.sharded) == ((2, 3), (8, 3), True)
    common.set_updates(5)
    assert common.updates == 5
