from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from stages.jit import mix64, random_words

ROOT = Path(__file__).parents[2]


def test_random_words_are_splitmix64() -> None:
    # The first outputs of the reference implementation for seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random_words(1234567, 4).tolist() == expected


def test_random_words_are_a_prefix_of_longer_ones() -> None:
    assert np.array_equal(random_words(-3, 5), random_words(-3, 9)[:5])


def test_mixing_is_one_to_one_on_neighbours() -> None:
    assert len(np.unique(mix64(np.arange(100_000, dtype=np.uint64)))) == 100_000


def test_importing_kernels_compiles_nothing() -> None:
    modules = ("shingles", "minhash", "bloom", "near_dedup", "components", "fingerprint")
    code = f"import {', '.join(f'stages.{m}' for m in modules)}, numba.core.dispatcher as d, gc\n" + (
        "found = [o for o in gc.get_objects() if isinstance(o, d.Dispatcher)]\n"
        "kernels = [o for o in found if o.__module__.startswith('stages.')]\n"
        "assert len(kernels) >= 8, kernels\n"
        "assert not any(k.signatures for k in kernels)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
