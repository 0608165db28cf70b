from __future__ import annotations

import numpy as np

from tests.trainer.optimizers.steps import MATRIX, RATES, gradients, ours, start


def test_it_is_the_algorithm_of_the_paper() -> None:
    weights, momentum = start((5, 3)).double().numpy(), np.zeros((5, 3))
    for gradient, rate in zip(gradients((5, 3)), RATES, strict=True):
        g = gradient.double().numpy()
        update = np.sign(0.8 * momentum + 0.2 * g)
        weights = weights - rate * (update + 0.2 * weights)
        momentum = 0.9 * momentum + 0.1 * g
    mine = ours(MATRIX, (5, 3), optimizer="lion", beta1=0.8, beta2=0.9, weight_decay=0.2)
    np.testing.assert_allclose(mine.numpy(), weights, rtol=1e-5, atol=1e-6)
