"""Damage never loses a record silently: any cut, any chunking, any wrong length."""

from __future__ import annotations

import gzip
import io
import random
from typing import Any

import pyarrow as pa
import zstandard
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stages.readers import Source, read

CRLF = "\r\n"


class Chunked:
    """An input that gives its bytes in reads of the given sizes, again and again."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        self._inner, self._sizes, self._turn = io.BytesIO(data), sizes, 0

    def read(self, count: int = -1) -> bytes:
        self._turn += 1
        return self._inner.read(min(count, self._sizes[self._turn % len(self._sizes)]))

    def __enter__(self) -> Chunked:
        return self

    def __exit__(self, *args: object) -> None:
        pass


def record(kind: str, body: bytes, url: str = "http://example.org/", length: int | None = None, **fields: str) -> bytes:
    lines = ["WARC/1.0", f"WARC-Type: {kind}", f"WARC-Target-URI: {url}", "WARC-Date: 2024-05-06T07:08:09Z"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    lines.append(f"Content-Length: {len(body) if length is None else length}")
    return (CRLF.join(lines) + CRLF * 2).encode() + body + b"\r\n\r\n"


def wet(text: str, **more: Any) -> bytes:
    return record("conversion", text.encode(), Content_Type="text/plain", **more)


def rows(data: bytes, path: str = "x.warc.gz", sizes: list[int] | None = None, **options: Any) -> list[dict[str, Any]]:
    source = Source(index=3, path=path, **options)
    batches = list(read(source, lambda _: Chunked(data, sizes or [1 << 20])))  # type: ignore[arg-type,return-value]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


TEXTS = [f"document {i} " + "".join(chr(97 + (i * 7 + j * j) % 26) for j in range(40 + 30 * i)) for i in range(8)]
MEMBERS = [gzip.compress(wet(text), mtime=0) for text in TEXTS]
STARTS = [sum(map(len, MEMBERS[:i])) for i in range(len(MEMBERS) + 1)]
WHOLE = b"".join(MEMBERS)
ONE_MEMBER = gzip.compress(b"".join(map(wet, TEXTS)), mtime=0)


def reasons(found: list[dict[str, Any]]) -> list[str | None]:
    return [row["reason"] for row in found]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, len(WHOLE) - 1), st.lists(st.integers(1, 700), min_size=1, max_size=4))
def test_any_cut_of_record_members_gives_every_whole_record_then_one_failure(cut: int, sizes: list[int]) -> None:
    found = rows(WHOLE[:cut], sizes=sizes)
    whole = sum(1 for start in STARTS[1:] if start <= cut)
    at_boundary = cut in STARTS
    assert [row["text"] for row in found[:whole]] == TEXTS[:whole]
    assert [row["offset"] for row in found] == STARTS[: len(found)]
    if cut < 3:
        # Two bytes are no gzip header yet: nothing says what the file is, but its name does.
        assert [row["failed"] for row in found] == [True]
    else:
        assert reasons(found[whole:]) == ([] if at_boundary else ["truncated"])


@settings(max_examples=40, deadline=None)
@given(st.integers(20, len(ONE_MEMBER) - 1))
def test_any_cut_of_one_member_gives_a_prefix_of_the_records_then_one_failure(cut: int) -> None:
    found = rows(ONE_MEMBER[:cut])
    assert [row["text"] for row in found[:-1]] == TEXTS[: len(found) - 1]
    assert found[-1]["reason"] == "truncated"


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 7), st.integers(12, 60), st.binary(min_size=1, max_size=30))
def test_damage_in_one_member_costs_that_record_only(which: int, where: int, junk: bytes) -> None:
    start = STARTS[which] + where
    damaged = WHOLE[:start] + junk + WHOLE[start + len(junk) :]
    if STARTS[which + 1] < start + len(junk) or damaged == WHOLE:
        return
    found = rows(damaged)
    assert [row["text"] for row in found if not row["failed"]] == TEXTS[:which] + TEXTS[which + 1 :]
    assert reasons(found)[which] in ("decompression", "truncated", "bad_record")
    assert found[which]["offset"] == STARTS[which]


def test_a_member_cut_off_before_the_next_one_costs_that_record_only() -> None:
    found = rows(MEMBERS[0] + MEMBERS[1][:-30] + MEMBERS[2])
    assert [row["text"] for row in found if not row["failed"]] == [TEXTS[0], TEXTS[2]]
    assert reasons(found) == [None, "decompression", None]


def test_a_wrong_checksum_fails_the_record_that_it_covers() -> None:
    member = bytearray(MEMBERS[1])
    member[-6] ^= 1
    assert reasons(rows(MEMBERS[0] + bytes(member) + MEMBERS[2])) == [None, "decompression", None]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=5), st.sampled_from(["plain", "gzip", "one", "zstd", "cut"]))
def test_rows_do_not_depend_on_how_reads_are_chunked(sizes: list[int], kind: str) -> None:
    data = {
        "plain": b"".join(map(wet, TEXTS)),
        "gzip": WHOLE,
        "one": ONE_MEMBER,
        "zstd": b"".join(zstandard.compress(wet(text)) for text in TEXTS),
        "cut": WHOLE[:-50] + b"garbage" + MEMBERS[3],
    }[kind]
    assert rows(data, sizes=sizes) == rows(data)


def test_chunked_reads_of_damaged_data_longer_than_a_slice() -> None:
    draw = random.Random(5)
    long = [wet(f"{i} {draw.randbytes(1500).hex()}") for i in range(60)]
    data = bytearray(gzip.compress(b"".join(long), 1, mtime=0))
    assert len(data) > 40_000
    data[len(data) // 2] ^= 0xFF
    expected = rows(bytes(data))
    assert len(expected) > 25
    assert "decompression" in reasons(expected)
    assert rows(bytes(data), sizes=[1000, 33_000, 7]) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 600), st.integers(0, 3))
@example(224, 0)  # ends where the header of the next record does, before a blank line
def test_a_wrong_length_fails_its_record_and_no_other(length: int, which: int) -> None:
    texts = [f"{text}, and no more of it." for text in TEXTS[:4]]
    parts = [wet(text, length=length if i == which else None) for i, text in enumerate(texts)]
    true_length = len(texts[which].encode())
    ends = [true_length + sum(map(len, parts[which + 1 : i])) for i in range(which + 2, 5)]
    # A length that takes in whole records is as good as any: a document may hold WARC records.
    assume(not any(end <= length <= end + 4 for end in ends))
    found = rows(b"".join(parts), path="x.warc")
    others = [text for i, text in enumerate(texts) if i != which]
    kept = [row["text"] for row in found if not row["failed"]]
    if length == true_length:
        assert kept == texts
    elif true_length < length <= true_length + 4:
        # The length takes in line ends that follow: the next record still begins where this one ends.
        assert [text.strip() for text in kept] == texts
    else:
        assert kept == others
        assert len(found) == 4
        assert found[which]["reason"] in ("bad_record", "truncated")


def test_a_huge_length_is_not_believed_and_not_held() -> None:
    data = wet("first") + wet("second", length=10**15) + wet("third") + wet("fourth")
    for limit in (16 << 20, 1000):
        found = rows(data, path="x.warc", max_record_bytes=limit)
        assert reasons(found) == [None, "bad_record", None, None]


def test_a_record_beyond_the_limit_is_a_counted_drop_between_its_neighbours() -> None:
    big = "x" * 300_000
    for data in (wet("one") + wet(big) + wet("two"), b"".join(gzip.compress(wet(t)) for t in ("one", big, "two"))):
        found = rows(data, max_record_bytes=100_000)
        assert reasons(found) == [None, "too_large", None]
        assert found[1]["value"] == 300_000.0
        assert not found[1]["failed"]


def test_bytes_between_records_are_one_failure_with_their_place() -> None:
    first = wet("first")
    found = rows(first + b"The junk is here.\r\nWARC is its name.\r\n\r\n" + wet("last"), path="x.warc")
    assert reasons(found) == [None, "bad_record", None]
    assert found[1]["offset"] == len(first)


def test_garbage_after_the_last_member_is_one_failure_and_zero_padding_is_none() -> None:
    assert reasons(rows(WHOLE + b"GARBAGE")) == [None] * 8 + ["decompression"]
    assert reasons(rows(WHOLE + b"\0" * 5000)) == [None] * 8


def test_a_bomb_is_passed_over_without_being_held() -> None:
    bomb = gzip.compress(wet("a" * 50_000_000), 9)
    assert len(bomb) < 100_000
    found = rows(bomb + MEMBERS[0], max_record_bytes=1 << 20)
    assert reasons(found) == ["too_large", None]


def test_zstd_frames_give_offsets_of_frames_and_damage_is_counted() -> None:
    frames = [zstandard.compress(wet(text)) for text in TEXTS[:3]]
    found = rows(b"".join(frames), path="x.warc.zst")
    assert [row["offset"] for row in found] == [0, len(frames[0]), len(frames[0]) + len(frames[1])]
    cut = rows(b"".join(frames)[:-4], path="x.warc.zst")
    assert reasons(cut) == [None, None, "truncated"]


def test_an_empty_line_file_and_an_empty_file_are_one_failure() -> None:
    for data in (b"", b"\r\n", gzip.compress(b"")):
        assert reasons(rows(data)) == ["empty_file"]


def test_offsets_in_a_file_of_one_member_count_decompressed_bytes() -> None:
    expected = [sum(len(wet(text)) for text in TEXTS[:i]) for i in range(8)]
    assert [row["offset"] for row in rows(ONE_MEMBER)] == expected
