from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.dedup.content import content_hashes, fold_whitespace
from stages.text.utf8 import utf8_buffers

WHITE = [" ", "  ", "\n", "\n\n", "\t", "\u00a0", "\u2003", "\u3000", "\x1c"]
PIECES = st.sampled_from([*WHITE, "\x00", "a", "word", "é", "中", "x" * 64])
TEXTS = st.lists(PIECES | st.text(st.characters(exclude_categories=("Cs",)), max_size=5), max_size=40).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(TEXTS, max_size=6), st.data())
def test_white_space_is_folded_as_python_splits(texts: list[str], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(texts)))
    folded, offsets = fold_whitespace(*utf8_buffers(pa.array(texts, pa.string())[cut:]))
    expected = [" ".join(text.split()).encode() for text in texts[cut:]]
    assert [folded[start:end].tobytes() for start, end in itertools.pairwise(offsets)] == expected


@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 127, 128, 129, 1_000])
def test_the_place_in_a_block_does_not_matter(length: int) -> None:
    for white in (" ", "  ", "\n", " \n", "\u2003", "\u2003 "):
        texts = ["x" * length + white + "y" * 70, white + "x" * length + white]
        found = content_hashes(*utf8_buffers(pa.array(texts))).to_pylist()
        assert found == [xxhash.xxh3_128_digest(" ".join(text.split()).encode()) for text in texts]


def test_no_documents() -> None:
    _, offsets = fold_whitespace(np.empty(0, np.uint8), np.zeros(1, np.int64))
    assert offsets.tolist() == [0]
    assert len(content_hashes(*utf8_buffers(pa.array([], pa.string())))) == 0
