from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.writer import COMPANION, ShardFiles, ShardWriter, token_dtype

END = 7


def documents(rows: int, first: int = 0) -> pa.RecordBatch:
    ids = np.arange(first, first + rows)
    return pa.RecordBatch.from_pydict(
        {
            "doc_id": pa.array(ids << 32),
            "url": pa.array([f"https://example.org/{i}" if i % 3 else None for i in ids], pa.string()),
            "content_hash": pa.array([bytes([i % 251] * 16) if i % 2 else None for i in ids], pa.binary(16)),
            "language": pa.array(["en"] * rows, pa.string()),
            "source_index": pa.array(ids % 5, pa.int32()),
            "offset": pa.array(ids * 10, pa.int64()),
            "text": pa.array(["left out"] * rows, pa.string()),
        }
    )


def writer(folder: Path, vocab_size: int = 1_000) -> ShardWriter:
    return ShardWriter(
        folder, domain="web", subset="train", vocab_size=vocab_size, end_of_text=END, tokenizer_digest="d" * 64
    )


def add(target: ShardWriter, texts: list[list[int]], first: int = 0) -> None:
    values = np.array([token for text in texts for token in text], np.uint32)
    offsets = np.cumsum([0, *(len(text) for text in texts)]).astype(np.int64)
    target.add(values, offsets, documents(len(texts), first))


def digest(files: ShardFiles) -> tuple[str, str]:
    return tuple(hashlib.sha256(path.read_bytes()).hexdigest() for path in (files.tokens_path, files.documents_path))


texts = st.lists(st.lists(st.integers(0, 999), max_size=12), max_size=12)


@given(texts=texts, cut=st.integers(0, 12))
@settings(max_examples=40, deadline=None)
def test_bytes_depend_on_the_content_and_not_on_how_it_was_added(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[int]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("shard")
    whole = writer(folder)
    add(whole, texts)
    files = whole.close()
    once = digest(files)
    parts = writer(folder)
    add(parts, texts[:cut])
    add(parts, texts[cut:], first=len(texts[:cut]))
    assert digest(parts.close()) == once
    tokens = pa.ipc.open_file(files.tokens_path).read_all().column("tokens").to_pylist()
    assert tokens == [[*text, END] for text in texts]
    companion = pa.ipc.open_file(files.documents_path).read_all()
    assert companion.column("tokens").to_pylist() == [len(text) + 1 for text in texts]
    assert companion.drop_columns("tokens").to_pylist() == (
        documents(len(texts)).select([name for name in COMPANION.names if name != "tokens"]).to_pylist()
    )
    assert (files.rows, files.tokens) == (len(texts), sum(len(text) + 1 for text in texts))


def test_what_lies_under_nulls_does_not_reach_the_file(tmp_path: Path) -> None:
    clean = documents(4)
    mask = pa.py_buffer(bytes([0b1010]))
    dirty = pa.Array.from_buffers(
        pa.binary(16), 4, [mask, pa.py_buffer(b"?" * 16 + b"\1" * 16 + b"?" * 16 + b"\3" * 16)], null_count=2
    )
    assert dirty.equals(clean.column("content_hash"))
    index = clean.schema.get_field_index("content_hash")
    results = []
    for batch in (clean, clean.set_column(index, "content_hash", dirty)):
        target = writer(tmp_path)
        target.add(np.arange(4), np.arange(5), batch)
        results.append(digest(target.close()))
    assert results[0] == results[1]


def test_offsets_may_start_inside_the_values(tmp_path: Path) -> None:
    target = writer(tmp_path)
    target.add(np.arange(10), np.array([2, 4, 4, 5]), documents(3))
    assert pa.ipc.open_file(target.close().tokens_path).read_all().column("tokens").to_pylist() == [
        [2, 3, END],
        [END],
        [4, END],
    ]


def test_vocabulary_decides_the_width(tmp_path: Path) -> None:
    assert token_dtype(65_536) == np.uint16
    assert token_dtype(65_537) == np.uint32
    for size, kind in ((65_536, pa.uint16()), (65_537, pa.uint32())):
        target = writer(tmp_path, size)
        add(target, [[size - 1]])
        column = pa.ipc.open_file(target.close().tokens_path).read_all().column("tokens")
        assert column.type == pa.large_list(kind)
        assert column.to_pylist() == [[size - 1, END]]


def test_metadata_is_as_promised(tmp_path: Path) -> None:
    files = writer(tmp_path).close()
    metadata = pa.ipc.open_file(files.tokens_path).schema.metadata
    assert metadata == {
        b"headrace.format": b"tokens-v2",
        b"domain": b"web",
        b"tokenizer": b"d" * 64,
        b"subset": b"train",
    }
    companion = pa.ipc.open_file(files.documents_path)
    assert companion.num_record_batches == 1
    assert companion.schema.metadata == metadata | {b"headrace.format": b"documents-v2"}


def test_a_writer_is_empty_after_closing(tmp_path: Path) -> None:
    target = writer(tmp_path)
    add(target, [[1, 2]])
    assert target.nbytes > 6
    target.close()
    assert (target.rows, target.tokens, target.nbytes, target.close().rows) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("values", "offsets", "rows", "message"),
    [
        ([1000], [0, 1], 1, "outside the vocabulary"),
        ([-1], [0, 1], 1, "outside the vocabulary"),
        ([1], [0, 2], 1, "not ascending"),
        ([1, 2], [0, 2, 1], 2, "not ascending"),
        ([1, 2], [0, 2], 2, "do not bound"),
    ],
)
def test_mistakes_of_the_caller_are_refused(
    tmp_path: Path, values: list[int], offsets: list[int], rows: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        writer(tmp_path).add(np.array(values), np.array(offsets), documents(rows))


def test_a_missing_column_and_an_unknown_subset_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no column 'url'"):
        writer(tmp_path).add(np.arange(2), np.arange(3), documents(2).drop_columns(["url"]))
    with pytest.raises(ValueError, match="neither train"):
        ShardWriter(tmp_path, domain="web", subset="test", vocab_size=9, end_of_text=1, tokenizer_digest="")
    with pytest.raises(ValueError, match="outside the vocabulary"):
        ShardWriter(tmp_path, domain="web", subset="train", vocab_size=9, end_of_text=9, tokenizer_digest="")
