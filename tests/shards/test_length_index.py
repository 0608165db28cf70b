from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import IncompleteError
from shards.length_index import BLOCK, BLOCK_DOCUMENTS, LengthIndex, LengthIndexWriter
from tests.shards.small_shards import flip


def write(path: Path, lengths: list[int], cuts: list[int] | None = None) -> LengthIndex:
    with LengthIndexWriter(path, "web", "train") as writer:
        for part in np.split(np.array(lengths, np.int64), sorted(cuts or [])):
            writer.add(part)
    assert (writer.documents, writer.tokens) == (len(lengths), sum(lengths))
    return LengthIndex(path, "web", "train", len(lengths), sum(lengths))


@st.composite
def many_lengths(draw: st.DrawFn) -> list[int]:
    count = draw(st.sampled_from([0, 1, 60, 61, 62, 243, 244, 245, 700]))
    drawn = np.random.default_rng(draw(st.integers(0, 99))).integers(1, draw(st.sampled_from([2, 3_000])), count)
    return [*drawn.tolist(), *draw(st.lists(st.integers(0, (1 << 32) - 1), max_size=5))]


@given(lengths=many_lengths(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_places_are_the_sums_of_the_lengths_before(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], data: st.DataObject
) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(lengths)), max_size=3))
    path = tmp_path_factory.mktemp("i") / "lengths"
    index = write(path, lengths, cuts)
    before = np.cumsum([0, *lengths])[:-1]
    picks = data.draw(st.lists(st.integers(0, len(lengths) - 1), max_size=30)) if lengths else []
    documents = np.array(picks, np.int64)
    assert index.lengths(documents).tolist() == [lengths[pick] for pick in picks]
    starts, own = index.places(documents)
    assert (starts.tolist(), own.tolist()) == (before[picks].tolist(), [lengths[pick] for pick in picks])
    index.verify()
    whole = path.read_bytes()
    write(path, lengths)
    assert path.read_bytes() == whole, "the bytes depend on how the lengths were added"


@pytest.mark.parametrize("document", [-1, 3])
def test_documents_outside_are_refused(tmp_path: Path, document: int) -> None:
    index = write(tmp_path / "i", [1, 2, 3])
    with pytest.raises(IndexError, match="has 3 documents in train"):
        index.lengths(np.array([0, document]))


@given(at=st.integers(0, 4 * BLOCK.itemsize - 1), bit=st.integers(0, 7))
@settings(max_examples=80, deadline=None)
def test_any_flipped_bit_is_found_when_its_block_is_touched_and_not_before(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("i") / "lengths"
    lengths = [7] * (3 * BLOCK_DOCUMENTS)
    write(path, lengths)
    flip(path, at / (4 * BLOCK.itemsize), bit)
    block = at // BLOCK.itemsize - 1
    if block < 0:
        with pytest.raises(IncompleteError, match="does not begin as an index of 732 documents"):
            LengthIndex(path, "web", "train", len(lengths), sum(lengths))
        return
    index = LengthIndex(path, "web", "train", len(lengths), sum(lengths))
    others = np.delete(np.arange(len(lengths)), slice(block * BLOCK_DOCUMENTS, (block + 1) * BLOCK_DOCUMENTS))
    assert set(index.lengths(others).tolist()) == {7}
    for look in (index.lengths, index.places):
        with pytest.raises(IncompleteError, match=rf"has changed since it was written, in block {block}") as caught:
            look(np.arange(block * BLOCK_DOCUMENTS, block * BLOCK_DOCUMENTS + 1))
        assert "headrace verify" in caught.value.remedy
    with pytest.raises(IncompleteError, match="has changed"):
        index.verify()


def test_blocks_that_changed_places_are_found(tmp_path: Path) -> None:
    path = tmp_path / "i"
    write(path, list(range(2 * BLOCK_DOCUMENTS)))
    data, size = path.read_bytes(), BLOCK.itemsize
    path.write_bytes(data[:size] + data[2 * size :] + data[size : 2 * size])
    index = LengthIndex(path, "web", "train", 2 * BLOCK_DOCUMENTS, sum(range(2 * BLOCK_DOCUMENTS)))
    with pytest.raises(IncompleteError, match="in block 0"):
        index.lengths(np.array([0]))


def test_blocks_of_another_index_are_found(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    write(one, [1, 2])
    with LengthIndexWriter(two, "code", "train") as other:
        other.add(np.array([1, 2]))
    one.write_bytes(one.read_bytes()[: BLOCK.itemsize] + two.read_bytes()[BLOCK.itemsize :])
    with pytest.raises(IncompleteError, match="in block 0"):
        LengthIndex(one, "web", "train", 2, 3).lengths(np.array([0]))


def test_what_is_not_this_index_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "i"
    write(path, [1, 2])
    for domain, subset, documents, tokens in (
        ("code", "train", 2, 3),
        ("web", "held_out", 2, 3),
        ("web", "train", 1, 3),
        ("web", "train", 2, 4),
    ):
        with pytest.raises(IncompleteError, match="does not begin as an index"):
            LengthIndex(path, domain, subset, documents, tokens)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(IncompleteError, match="has 2047 bytes, not 2048"):
        LengthIndex(path, "web", "train", 2, 3)
    path.unlink()
    with pytest.raises(IncompleteError, match="cannot be read"):
        LengthIndex(path, "web", "train", 2, 3)


def test_an_index_that_an_error_ended_has_no_header(tmp_path: Path) -> None:
    with pytest.raises(KeyError), LengthIndexWriter(tmp_path / "i", "web", "train"):
        raise KeyError
    with pytest.raises(IncompleteError, match="does not begin as an index"):
        LengthIndex(tmp_path / "i", "web", "train", 0, 0)
