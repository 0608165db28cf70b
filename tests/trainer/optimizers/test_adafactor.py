from __future__ import annotations

import pytest
import torch

from tests.trainer.optimizers.steps import MATRIX, VECTOR, ours, torchs


@pytest.mark.parametrize(
    ("name", "shape", "decay"), [(MATRIX, (5, 3), 0.2), (MATRIX, (3, 7), 0.2), (VECTOR, (6,), 0.0)]
)
def test_it_is_the_one_of_torch(name: str, shape: tuple[int, ...], decay: float) -> None:
    mine = ours(name, shape, optimizer="adafactor", weight_decay=0.2)
    theirs = torchs(lambda p: torch.optim.Adafactor(p, weight_decay=decay), shape)
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
