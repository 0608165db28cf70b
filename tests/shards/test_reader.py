from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import reader
from shards.catalog import CATALOG_NAME, SUBSETS
from shards.errors import IncompleteError, UserError
from shards.files import hash_file
from shards.listing import write_index
from shards.reader import ShardSet
from shards.token_files import safe_path
from tests.shards.small_shards import END, Written, lengths_of, tokens_of, url_of, write_catalog, write_shard

Texts = list[list[int]]


def build(folder: Path, shards: list[Texts], *, vocab_size: int = 500, held_out: Texts | None = None) -> ShardSet:
    """Write one domain, "web": a list of shards, each a list of documents, each a list of tokens."""
    entries, first = [], 0
    for index, texts in enumerate(shards):
        entries.append(
            write_shard(folder, str(index), texts, domain="web", vocab_size=vocab_size, first_id=first, source=index)
        )
        first += len(texts)
    held = []
    if held_out is not None:
        held.append(write_shard(folder, "h", held_out, domain="web", subset="held_out", vocab_size=vocab_size))
    write_catalog(folder, {"web": Written(train=tuple(entries), held_out=tuple(held))}, vocab_size)
    opened = ShardSet.open(folder)
    opened.verify()
    return opened


shard_lists = st.lists(st.lists(st.lists(st.integers(1, 499), max_size=9), max_size=5), max_size=4)


@given(shards=shard_lists, data=st.data())
@settings(max_examples=40, deadline=None)
def test_documents_come_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, shards: list[Texts], data: st.DataObject
) -> None:
    opened = build(tmp_path_factory.mktemp("set"), shards)
    flat = [[*text, END] for texts in shards for text in texts]
    assert opened.documents("web") == len(flat)
    assert lengths_of(opened, "web") == [len(text) for text in flat]
    assert opened.token_count("web") == sum(map(len, flat)) == opened.catalog.tokens_per_domain()["web"]
    assert [tokens_of(opened, "web", "train", index).tolist() for index in range(len(flat))] == flat
    if not flat:
        return
    picks = data.draw(st.lists(st.integers(0, len(flat) - 1), max_size=8))
    spans = [(d, s, data.draw(st.integers(0, len(flat[d]) - s))) for d in picks for s in [min(1, len(flat[d]) - 1)]]
    documents, starts, lengths = (np.array([span[i] for span in spans], np.int64) for i in range(3))
    places = np.cumsum([0, *lengths], dtype=np.int64)
    out = np.full(int(places[-1]), -1, np.int64)
    opened.gather("web", "train", documents, starts, lengths, out, places[:-1])
    assert out.tolist() == [token for d, s, n in spans for token in flat[d][s : s + n]]


@given(shards=shard_lists)
@settings(max_examples=20, deadline=None)
def test_every_token_leads_back_to_its_source(tmp_path_factory: pytest.TempPathFactory, shards: list[Texts]) -> None:
    opened = build(tmp_path_factory.mktemp("set"), shards)
    doc_id = 0
    for number, texts in enumerate(shards):
        for text in texts:
            for token in range(len(text) + 1):
                place = opened.trace("web", "train", doc_id, token)
                assert (place["doc_id"], place["url"]) == (doc_id, url_of("web", doc_id))
                assert (place["source_index"], place["offset"], place["token"]) == (number, doc_id * 100, token)
                assert (place["domain"], place["subset"]) == ("web", "train")
            with pytest.raises(IndexError):
                opened.trace("web", "train", doc_id, len(text) + 1)
            doc_id += 1


def test_held_out_documents_are_apart(tmp_path: Path) -> None:
    opened = build(tmp_path, [[[1], [2]]], held_out=[[3, 4]])
    assert opened.documents("web") == 2
    assert tokens_of(opened, "web", "held_out", 0).tolist() == [3, 4, END]
    with pytest.raises(UserError, match="no domain 'books'"):
        opened.documents("books")


def test_wide_vocabularies_come_back(tmp_path: Path) -> None:
    opened = build(tmp_path, [[[99_999]]], vocab_size=100_000)
    assert tokens_of(opened, "web", "train", 0).tolist() == [99_999, END]


def test_few_shards_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_OPEN_SHARDS", 2)
    opened = build(tmp_path, [[[i + 1]] for i in range(6)])
    assert opened._files.mapped == 0
    for _ in range(2):
        assert [tokens_of(opened, "web", "train", i).tolist() for i in range(6)] == [[i + 1, END] for i in range(6)]
        assert opened._files.mapped == 2
    # One span from every shard at once.
    documents, out = np.arange(6), np.zeros(6, np.int64)
    opened.gather("web", "train", documents, 0 * documents, 0 * documents + 1, out, documents)
    assert out.tolist() == [1, 2, 3, 4, 5, 6]


def test_planning_opens_no_shard(tmp_path: Path) -> None:
    opened = build(tmp_path, [[[1, 2], [3]], [[4]]])
    for path in tmp_path.glob("*.arrow"):
        path.unlink()
    assert lengths_of(opened, "web") == [3, 2, 2]
    at = opened.locate("web", "train", np.array([2, 0, 1]))
    assert (at.shard.tolist(), at.start.tolist(), at.length.tolist()) == ([1, 0, 0], [0, 0, 3], [2, 3, 2])
    with pytest.raises(IncompleteError, match=r"0\.tokens\.arrow is missing"):
        tokens_of(opened, "web", "train", 0)


def test_spans_beyond_their_document_or_the_buffer_are_refused(tmp_path: Path) -> None:
    opened = build(tmp_path, [[[1, 2], [3]]])
    one = np.ones(1, np.int64)
    out = np.zeros(4, np.int64)
    for document, start, length, place in ((0, 2, 2, 0), (0, -1, 1, 0), (0, 0, 3, 2), (0, 0, 1, -1), (2, 0, 1, 0)):
        with pytest.raises(IndexError):
            opened.gather("web", "train", one * document, one * start, one * length, out, one * place)
    assert out.tolist() == [0, 0, 0, 0]


def test_files_that_disagree_with_the_manifest_are_not_read(tmp_path: Path) -> None:
    build(tmp_path, [[[1, 2, 3]], [[4, 5]]])
    for name in ("0.tokens.arrow", "0.documents.arrow"):
        path = tmp_path / name
        good = path.read_bytes()
        path.write_bytes(good[:-8])
        with pytest.raises(IncompleteError, match="bytes, not"):
            ShardSet.open(tmp_path)
        path.write_bytes(b"\0" * len(good))
        with pytest.raises(IncompleteError, match="checksum"):
            ShardSet.open(tmp_path).verify()
        path.unlink()
        with pytest.raises(IncompleteError, match="is missing"):
            ShardSet.open(tmp_path)
        path.write_bytes(good)
    ShardSet.open(tmp_path)


def test_a_flipped_token_is_found_by_its_checksum(tmp_path: Path) -> None:
    build(tmp_path, [[[301, 302, 303]]])
    path = tmp_path / "0.tokens.arrow"
    data = path.read_bytes()
    at = data.index(np.array([301, 302, 303], np.uint16).tobytes())
    path.write_bytes(data[:at] + b"\x05\0" + data[at + 2 :])
    opened = ShardSet.open(tmp_path)
    with pytest.raises(IncompleteError, match="checksum"):
        opened.verify()


@pytest.mark.parametrize("kind", ["tokens", "documents"])
def test_a_shard_of_the_format_before_is_refused_with_the_way_out(tmp_path: Path, kind: str) -> None:
    entry = write_shard(tmp_path, "0", [[1, 2, 3]], domain="web", vocab_size=500)
    path = tmp_path / f"0.{kind}.arrow"
    batch = pa.ipc.open_file(path).get_batch(0)
    metadata = {**batch.schema.metadata, b"headrace.format": f"{kind}-v1".encode()}
    batch = batch.replace_schema_metadata(metadata)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    sha256, size = hash_file(path)
    entry = entry.model_copy(update={f"{kind}_bytes": size, f"{kind}_sha256": sha256})
    write_catalog(tmp_path, {"web": Written(train=(entry,))}, 500)
    with pytest.raises(IncompleteError, match=rf"has format {kind}-v1, .* reads {kind}-v2") as caught:
        ShardSet.open(tmp_path).verify()
    assert caught.value.remedy.startswith("Run the recipe again")
    assert caught.value.place == str(path)


def test_parts_of_the_verification_cover_every_byte_once(tmp_path: Path) -> None:
    opened = build(tmp_path, [[[301, 302]], [[303]], [[304], [305, 306]]], held_out=[[307]])
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.name != "manifest.json")
    assert {path.suffix for path in files} == {".arrow", ".lengths"}
    size = sum(path.stat().st_size for path in files)
    for parts in (1, 2, 3, 7):
        assert sum(opened.verify(part, parts) for part in range(parts)) == size
    for path in files:
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        damaged = []
        for part in range(2):
            try:
                opened.verify(part, 2)
            except IncompleteError as error:
                damaged.append(error.place)
        assert damaged == [str(path)]
        path.write_bytes(good)


def test_a_shard_in_the_wrong_subset_is_found(tmp_path: Path) -> None:
    train, held_out = (
        write_shard(tmp_path, subset, [[1]], domain="web", subset=subset, vocab_size=500) for subset in SUBSETS
    )
    write_catalog(tmp_path, {"web": Written(train=(held_out,))}, 500)
    with pytest.raises(IncompleteError, match="says it is"):
        ShardSet.open(tmp_path).verify()
    wide = write_shard(tmp_path, "wide", [[1]], domain="web", vocab_size=70_000)
    write_catalog(tmp_path, {"web": Written(train=(wide,))}, 500)
    with pytest.raises(IncompleteError, match="2 tokens of uint32, not 2 of uint16"):
        ShardSet.open(tmp_path).verify()
    write_catalog(tmp_path, {"web": Written(train=(train.model_copy(update={"tokens_bytes": 9_999}),))}, 500)
    with pytest.raises(IncompleteError, match="bytes, not 9999"):
        ShardSet.open(tmp_path)


def test_lengths_that_are_not_the_shards_own_are_found(tmp_path: Path) -> None:
    build(tmp_path, [[[1, 2], [3]]])
    entry = write_shard(tmp_path, "0", [[1, 2], [3]], domain="web", vocab_size=500)
    made = write_index(tmp_path / "index", "web", "train", [entry], lambda _: np.array([2, 3]))
    catalog = json.loads((tmp_path / CATALOG_NAME).read_text())
    catalog["domains"]["web"]["train"]["lengths"]["sha256"] = hash_file(made.lengths)[0]
    (tmp_path / CATALOG_NAME).write_text(json.dumps(catalog))
    with pytest.raises(IncompleteError, match="other lengths than the index says"):
        ShardSet.open(tmp_path).verify()


@pytest.mark.parametrize("name", ["../x.arrow", "/etc/passwd", "a/../../x", "", "a\0b"])
def test_paths_never_leave_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="outside its folder"):
        safe_path(tmp_path, name)


def test_links_never_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    build_at = build(inside, [[[1]]])
    (inside / "0.tokens.arrow").rename(outside)
    (inside / "0.tokens.arrow").symlink_to(outside)
    with pytest.raises(UserError, match="outside its folder"):
        ShardSet.open(build_at.folder)
