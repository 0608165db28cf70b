from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.lm.counts import NgramCounts, count_ngrams, suffix_order

lines_of_words = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "é", "<s>", "<unk>"]), max_size=8).map(" ".join), max_size=12
)


def windows(lines: Iterable[str], order: int) -> Counter[tuple[str, ...]]:
    found: Counter[tuple[str, ...]] = Counter()
    for line in lines:
        words = [word for word in line.split() if word not in ("<s>", "</s>", "<unk>", "<UNK>")]
        padded = ["<s>"] * (order - 1) + words + ["</s>"]
        found.update(tuple(padded[i : i + order]) for i in range(len(padded) - order + 1))
    return found


def as_dict(counts: NgramCounts) -> dict[tuple[str, ...], int]:
    rows = [tuple(counts.words[i] for i in row) for row in counts.ngrams.tolist()]
    assert len(set(rows)) == len(rows)
    return dict(zip(rows, counts.counts.tolist(), strict=True))


@settings(max_examples=60, deadline=None)
@given(lines_of_words, st.integers(1, 6))
def test_counts_every_window(lines: list[str], order: int) -> None:
    if not any(word not in ("<s>", "<unk>") for line in lines for word in line.split()):
        with pytest.raises(UserError, match="no words"):
            count_ngrams(lines, order)
        return
    counts = count_ngrams(lines, order)
    assert as_dict(counts) == windows(lines, order)
    split = [word for line in lines for word in line.split()]
    skipped = sum(word in ("<s>", "<unk>") for word in split)
    assert (counts.sentences, counts.tokens) == (len(lines), len(split) - skipped)
    assert list(counts.words[:3]) == ["<unk>", "<s>", "</s>"]
    assert list(counts.words[3:]) == sorted(set(split) - {"<s>", "<unk>"})
    backwards = counts.ngrams[:, ::-1].tolist()
    assert backwards == sorted(backwards)


@pytest.mark.parametrize("order", [1, 3, 6])
def test_counts_a_corpus_that_makes_the_table_grow(order: int) -> None:
    rng = np.random.default_rng(3)
    lines = [" ".join(f"w{i}" for i in rng.zipf(1.2, 20) if i < 1 << 40) for _ in range(1500)]
    counts = count_ngrams(lines, order)
    assert len(counts.counts) > 1 << 12
    assert as_dict(counts) == windows(lines, order)


def test_a_line_longer_than_the_buffer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["a b c a b <s> c d " * 20, "", "b\0a\tc\xa0d"]
    expected = as_dict(count_ngrams(lines, 4))
    monkeypatch.setattr("stages.lm.counts._BUFFER_TOKENS", 7)
    monkeypatch.setattr("stages.lm.counts._LONG_LINE_CHARS", 5)
    assert as_dict(count_ngrams(lines, 4)) == expected == windows([line.replace("\0", " ") for line in lines], 4)


def test_memory_follows_the_distinct_ngrams_and_not_the_text() -> None:
    count_ngrams(["a"], 4)
    tracemalloc.start()
    try:
        counts = count_ngrams(("the same line of words again " * 4 for _ in range(40_000)), 4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert counts.tokens == 960_000
    # One buffer of 2**18 tokens, as a list and as an array; all tokens at once would be 12 MB, and their text 29.
    assert peak < 6 << 20


def test_progress_counts_lines() -> None:
    seen: list[int] = []
    count_ngrams(["a"] * 20_000, 2, seen.append)
    assert seen == [8192, 16384, 20_000]


def test_half_a_surrogate_pair_is_named() -> None:
    with pytest.raises(UserError, match=r"ud800.*lm_lines"):
        count_ngrams(["fine", "a\ud800"], 2)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 32), st.integers(0, 1 << 30))
def test_suffix_order_with_any_width_of_id(order: int, bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    few = rng.integers(0, 1 << bits, 6, dtype=np.uint32)
    rows = np.unique(rng.choice(few, (200, order)), axis=0)
    rng.shuffle(rows)
    backwards = rows[suffix_order(rows)][:, ::-1].tolist()
    assert backwards == sorted(row[::-1] for row in rows.tolist())
