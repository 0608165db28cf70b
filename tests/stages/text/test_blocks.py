from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.jit import argument
from stages.text import blocks
from stages.text.blocks import BLOCK
from stages.text.characters import CLASS_SHIFT, LETTER, WHITESPACE, character_table


@numba.njit
def masks(data: Any, at: int) -> tuple[int, int, int, int, int]:
    return (
        blocks.word_bytes(data, at),
        blocks.not_ascii(data, at),
        blocks.controls(data, at),
        blocks.spaces(data, at),
        blocks.from_u0300(data, at),
    )


CHOSEN: tuple[Callable[[int], bool], ...] = (
    lambda byte: byte < 0x80 and bool(character_table()[byte] >> CLASS_SHIFT == LETTER),
    lambda byte: byte >= 0x80,
    lambda byte: byte < 0x20 or byte >= 0x80,
    lambda byte: byte == 0x20,
    lambda byte: byte >= "\u0300".encode()[0],
)


@pytest.mark.parametrize("at", [0, 1, 63, 192])
def test_masks_say_of_every_byte_what_the_tables_say(at: int) -> None:
    data = argument(np.arange(256, dtype=np.uint8))
    for mask, chosen in zip(masks(data, at), CHOSEN, strict=True):
        assert mask == sum(chosen(at + place) << place for place in range(BLOCK))


def test_white_space_of_ascii_is_a_control_or_a_space() -> None:
    table = character_table()
    assert all(byte < 0x20 or byte == 0x20 for byte in range(0x80) if table[byte] & WHITESPACE)


@numba.njit
def words_of(data: Any, at: int, terms: Any) -> tuple[int, int, int]:
    chunk = blocks.load(data, at)
    return chunk, blocks.trailing_zeros(chunk), blocks.sum_of_terms(chunk, terms)


@settings(deadline=None, max_examples=100)
@given(st.binary(min_size=8, max_size=20), st.data())
def test_words_of_eight_bytes(raw: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(raw) - 8))
    terms = np.random.default_rng(1).integers(0, 1 << 64, 2_048, np.uint64)
    chunk, zeros, total = words_of(argument(np.frombuffer(raw, np.uint8)), at, argument(terms))
    assert chunk == int.from_bytes(raw[at : at + 8], "little")
    assert zeros == ((chunk & -chunk).bit_length() - 1 if chunk else 64)
    assert total == sum(int(terms[k << 8 | raw[at + 7 - k]]) for k in range(8)) % (1 << 64)


@numba.njit
def copied(source: Any, at: int, target: Any, to: int) -> None:
    blocks.copy_block(source, at, target, to)


def test_a_block_is_copied_to_any_place() -> None:
    source, target = np.arange(100, dtype=np.uint8), np.zeros(200, np.uint8)
    copied(argument(source), 7, target, 33)
    assert target[33 : 33 + BLOCK].tolist() == list(range(7, 7 + BLOCK))
    assert np.flatnonzero(target).tolist() == list(range(33, 33 + BLOCK))
