from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.optimizers.steps import MATRIX, VECTOR, ours, start, torchs
from trainer.optimizers.muon import orthogonal


@pytest.mark.parametrize("shape", [(8, 4), (4, 8), (6, 6)])
def test_a_matrix_moves_as_under_the_one_of_torch(shape: tuple[int, int]) -> None:
    mine = ours(MATRIX, shape, optimizer="muon", weight_decay=0.2)
    theirs = torchs(lambda p: torch.optim.Muon(p, weight_decay=0.2, adjust_lr_fn="match_rms_adamw"), shape)
    # Theirs iterates in bf16 everywhere.
    assert (mine - theirs).norm() < 0.02 * (theirs - start(shape)).norm()
    assert (mine - start(shape)).norm() > 0.1


def test_all_else_moves_as_under_adamw() -> None:
    vector = ours(VECTOR, (6,), optimizer="muon", weight_decay=0.2)
    torch.testing.assert_close(vector, ours(VECTOR, (6,), optimizer="adamw", weight_decay=0.2))
    head = ours("head.weight", (5, 3), optimizer="muon", weight_decay=0.2)
    torch.testing.assert_close(head, ours("head.weight", (5, 3), optimizer="adamw", weight_decay=0.2))


@given(rows=st.integers(1, 12), columns=st.integers(1, 12), scale=st.floats(1e-3, 1e3), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_singular_values_come_near_one_and_vectors_stay(rows: int, columns: int, scale: float, seed: int) -> None:
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * scale
    left, values, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    found = left.T @ orthogonal(matrix).double() @ right.T
    kept = values > 0.05 * values[0]
    assert ((found.diagonal()[kept] - 0.95).abs() < 0.4).all()
    assert (found - torch.diag(found.diagonal())).abs().max() < 1e-3


def test_nothing_stays_nothing() -> None:
    assert not orthogonal(torch.zeros(3, 4)).any()
