from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba.core.caching
import numpy as np
import pytest

from stages import jit
from stages.dedup import content, minhash
from stages.html import lexer as html_lexer
from stages.html import names as html_names
from stages.html import nesting as html_nesting
from stages.html import stack as html_stack
from stages.html import tree as html_tree
from stages.jit import argument, kernel, mix64, random_words
from stages.text import blocks, characters, counts, normal, shingles, utf8, word_scan, words

ROOT = Path(__file__).parents[2]


def test_random_words_are_splitmix64() -> None:
    # The first outputs of the reference implementation for seed 1234567.
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert random_words(1234567, 4).tolist() == expected


def test_random_words_are_a_prefix_of_longer_ones() -> None:
    assert np.array_equal(random_words(-3, 5), random_words(-3, 9)[:5])


def test_mixing_is_one_to_one_on_neighbours() -> None:
    assert len(np.unique(mix64(np.arange(100_000, dtype=np.uint64)))) == 100_000


@pytest.mark.integration
def test_importing_kernels_compiles_nothing() -> None:
    modules: tuple[str, ...] = (
        "text.words",
        "text.counts",
        "text.repetition",
        "text.shingles",
        "lm.normalise",
        "judges.fingerprint",
        "text.normal",
        "dedup.content",
    )
    modules += ("dedup.minhash", "dedup.bloom", "dedup.near", "dedup.components")
    code = f"import {', '.join(f'stages.{m}' for m in modules)}, numba.core.dispatcher as d, gc\n" + (
        "found = [o for o in gc.get_objects() if isinstance(o, d.Dispatcher)]\n"
        "kernels = [o for o in found if o.__module__.startswith('stages.')]\n"
        "assert len(kernels) >= 8, kernels\n"
        "assert not any(k.signatures for k in kernels)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


@pytest.mark.integration
def test_each_kernel_is_compiled_once_whatever_the_form_of_its_input() -> None:
    code = """
import gc
import numba.core.dispatcher
import numpy as np
import pyarrow as pa
from stages.dedup.bloom import TwoLevelBloom
from stages.dedup.components import components
from stages.judges.fingerprint import Fingerprint
from stages.dedup.minhash import signatures
from stages.dedup.near import PAIR, ShingleSets, jaccard_of_pairs, linked, near_keys, survivors
from stages.lm.normalise import lm_lines
from stages.text.counts import count_stop_words
from stages.text.repetition import measure_repetition
from stages.text.shingles import batch_shingles
from stages.text.word_scan import Words, scan_words

for text in (pa.array(["a b", None]), pa.array(["", "c d e f g h"], pa.large_string())[1:], pa.array([], pa.string())):
    Fingerprint().judge(pa.record_batch({"text": text}))
    scan = scan_words(text)
    taken = scan.take(pa.array([0] * min(len(text), 1), pa.int64()))
    for words in map(Words.of, (scan, taken, scan[:0])):
        rows = len(words.rest)
        count_stop_words(words, text[:rows], ["en"] * rows, {"en": ("a", "b")})
        count_stop_words(words, text[:rows], ["en"] * rows, {})
        measure_repetition(words)
    lm_lines("".join(text.fill_null("").to_pylist()))
    offsets, hashes = batch_shingles(text, 5)
    signatures(offsets, np.frombuffer(hashes.tobytes(), np.uint64), 8, 1)
ids, keys, priority = np.arange(6)[::2], np.zeros((3, 2), np.uint64), np.zeros(3, np.int64)
merged, links = linked([near_keys(keys, ids, np.ones(3, np.int32))], 0.8)
linked([merged, merged[::-1]], 0.8)
pairs = np.array([(0, 2)], PAIR)
offsets, hashes = batch_shingles(pa.array(["a b", "a b", "c"]), 1)
for form in (hashes, np.frombuffer(hashes.tobytes(), np.uint64), np.repeat(hashes, 2)[::2]):
    jaccard_of_pairs(pairs, ids, offsets, form)
    survivors(ShingleSets(ids, priority, keys, offsets, form), 0.8, 16)
    bloom = TwoLevelBloom(3, 0.1)
    bloom.add(form, form)
    bloom.suspects(form, form)
components(links["a"], links["b"])
components(ids, ids)
found = [o for o in gc.get_objects() if isinstance(o, numba.core.dispatcher.Dispatcher)]
kernels = [o for o in found if o.__module__.startswith("stages.") and o.stats.cache_path]
compiled = {o.__name__: len(o.signatures) for o in kernels}
assert {n for n, count in compiled.items() if count != 1} == set(), compiled
assert len(compiled) >= 13, compiled
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})


def test_kernels_work_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.core.caching.CacheImpl, "_locator_classes", [])

    def double(value: int) -> int:
        return 2 * value

    assert kernel(double)(21) == 42


def test_an_argument_is_a_view_where_it_can_be() -> None:
    array = np.arange(6)
    assert np.shares_memory(argument(array), array)
    assert array.flags.writeable
    assert not argument(array).flags.writeable
    assert argument(array[::2]).tolist() == [0, 2, 4]
    assert argument(array[::2]).flags.c_contiguous


@pytest.mark.parametrize("kernel", [shingles._shingle, counts._count, word_scan._scan, words._hash_words])
def test_a_kernel_that_cuts_words_is_named_after_their_definition(kernel: Any) -> None:
    source = jit._source(kernel.py_func, set())
    for module in (words, utf8):
        assert module.__file__
        assert Path(module.__file__).read_bytes() in source
    assert f"CLASS_SHIFT={characters.CLASS_SHIFT}".encode() in source


@pytest.mark.parametrize("kernel", [shingles._shingle, minhash._sign, content._fold_whitespace, normal._check])
def test_a_kernel_that_takes_blocks_is_named_after_them(kernel: Any) -> None:
    assert Path(blocks.__file__).read_bytes() in jit._source(kernel.py_func, set())


def test_a_kernel_is_named_after_every_file_that_it_is_made_of() -> None:
    source = jit._source(html_nesting.scan.py_func, set())  # type: ignore[attr-defined]
    for module in (html_nesting, html_tree, html_stack, html_lexer):
        assert module.__file__
        assert Path(module.__file__).read_bytes() in source
    # Of a file that it takes only numbers from, those numbers.
    assert f"FOREIGN={html_names.FOREIGN}".encode() in source
