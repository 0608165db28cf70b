from __future__ import annotations

import pytest
import torch

from tests.trainer.optimizers.steps import MATRIX, VECTOR, ours, torchs


@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_it_is_the_one_of_torch(momentum: float) -> None:
    mine = ours(MATRIX, (5, 3), optimizer="sgd", momentum=momentum, weight_decay=0.2)
    torch.testing.assert_close(mine, torchs(lambda p: torch.optim.SGD(p, momentum=momentum, weight_decay=0.2), (5, 3)))
    vector = ours(VECTOR, (5,), optimizer="sgd", momentum=momentum, weight_decay=0.2)
    torch.testing.assert_close(vector, torchs(lambda p: torch.optim.SGD(p, momentum=momentum), (5,)))
