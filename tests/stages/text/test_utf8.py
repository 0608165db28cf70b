from __future__ import annotations

import codecs
import itertools
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.text.utf8 import decode, utf8_buffers

codecs.register_error("each byte", lambda error: ("\ufffd", error.start + 1))


@numba.njit
def _decode_all(data: Any, at: int, end: int, points: Any) -> int:
    count = 0
    while at < end:
        points[count], at = decode(data, at, end)
        count += 1
    return count


def decoded(data: bytes, start: int, end: int) -> str:
    points: npt.NDArray[np.int64] = np.empty(len(data) + 1, np.int64)
    return "".join(map(chr, points[: _decode_all(np.frombuffer(data, np.uint8), start, end, points)]))


def test_every_code_point() -> None:
    text = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    data = text.encode()
    assert decoded(data, 0, len(data)) == text


PIECES = st.sampled_from(
    [b"\xc1\xbf", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\x80", b"\xe4\xb8",
     b"\xff", b"\xf8\x88\x80\x80\x80", b"\xe4\xb8\xad", b"\xf0\x9f\x99\x82", b"\xc3\xa9", b"a"]
)  # fmt: skip


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(st.binary(max_size=12), st.lists(PIECES, max_size=5).map(b"".join)),
    st.sampled_from([b"", b"\x80\x80\x80", b"\xbf"]),
)
@example(b"\xe4\xb8", b"\xad")
def test_malformed_bytes_are_one_replacement_character_each_and_bounds_are_kept(raw: bytes, behind: bytes) -> None:
    assert decoded(b"\xe4" + raw + behind, 1, 1 + len(raw)) == raw.decode("utf-8", "each byte")


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=6), max_size=6), st.data(), st.sampled_from([pa.string(), pa.large_string()]))
def test_buffers_of_a_slice(texts: list[str], data: st.DataObject, kind: pa.DataType) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in texts]
    start = data.draw(st.integers(0, len(texts)))
    raw, bounds = utf8_buffers(pa.array(texts, kind)[start:])
    assert bounds.dtype == np.int64
    assert len(bounds) == len(texts) - start + 1
    assert [raw[a:b].tobytes().decode() for a, b in itertools.pairwise(bounds.tolist())] == texts[start:]


@pytest.mark.parametrize("array", [pa.array([1]), pa.array(["a", None]), pa.array([b"a"])])
def test_only_strings_without_nulls(array: pa.Array) -> None:
    with pytest.raises(TypeError, match="is not an array of strings"):
        utf8_buffers(array)
