from __future__ import annotations

import itertools

import numpy as np

from tests.trainer.optimizers.steps import MATRIX, RATES, VECTOR, gradients, ours, start


def test_a_matrix_is_covered_by_rows_and_columns_entry_by_entry() -> None:
    rows, columns = 5, 3
    weights, momentum = start((rows, columns)).double().numpy(), np.zeros((rows, columns))
    cover = {("row", i): 0.0 for i in range(rows)} | {("column", j): 0.0 for j in range(columns)}
    for gradient, rate in zip(gradients((rows, columns)), RATES, strict=True):
        fresh = dict.fromkeys(cover, 0.0)
        for i, j in itertools.product(range(rows), range(columns)):
            g = float(gradient[i, j])
            second = min(cover["row", i], cover["column", j]) + g * g
            momentum[i, j] = 0.9 * momentum[i, j] + 0.1 * g / second**0.5
            weights[i, j] -= rate * (momentum[i, j] + 0.2 * weights[i, j])
            for key in (("row", i), ("column", j)):
                fresh[key] = max(fresh[key], second)
        cover = fresh
    mine = ours(MATRIX, (rows, columns), optimizer="sm3", weight_decay=0.2)
    np.testing.assert_allclose(mine.numpy(), weights, rtol=1e-5, atol=1e-6)


def test_a_vector_is_adagrad_with_momentum() -> None:
    weights, momentum, second = start((4,)).double().numpy(), np.zeros(4), np.zeros(4)
    for gradient, rate in zip(gradients((4,)), RATES, strict=True):
        g = gradient.double().numpy()
        second += g * g
        momentum = 0.9 * momentum + 0.1 * g / np.sqrt(second)
        weights -= rate * momentum
    np.testing.assert_allclose(ours(VECTOR, (4,), optimizer="sm3").numpy(), weights, rtol=1e-5, atol=1e-6)
