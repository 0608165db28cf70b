from __future__ import annotations

import hashlib
import os
import threading
import uuid
from pathlib import Path

import pytest

from shards.errors import IncompleteError, UserError
from shards.files import hash_file
from shards.store import SCRATCH, FileEntry, Store

OUTSIDE = ["../x", "a/../../x", "a/..", "..", "/etc/passwd", "a\\b", "..\\x", "", "//x"]


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(tmp_path / "out", repairs=True)


@pytest.fixture(params=["local", "memory", "memory, rooted"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    name = f"headrace-{uuid.uuid4().hex}/run"
    return Store(
        {"local": str(tmp_path), "memory": f"memory://{name}", "memory, rooted": f"memory:///{name}"}[request.param],
        repairs=True,
    )


def written(store: Store, data: bytes, folder: Path) -> Path:
    path = folder / "table.arrow"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("path", OUTSIDE)
def test_no_path_leads_out(store: Store, path: str) -> None:
    for use in (store.exists, store.size, store.read_bytes, store.read_named, store.open, store.delete):
        with pytest.raises(UserError, match="leads out"):
            use(path)
    with pytest.raises(UserError, match="leads out"):
        store.write_bytes(path, b"x")


def test_no_link_leads_out(local: Store, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"s")
    local.write_bytes("a/inside", b"x")
    (Path(local.root) / "folder").symlink_to(outside)
    (Path(local.root) / "file").symlink_to(outside / "secret")
    for path in ("folder/secret", "file", "folder/new"):
        with pytest.raises(UserError, match="by a link"):
            local.read_bytes(path)
        with pytest.raises(UserError, match="by a link"):
            local.write_bytes(path, b"y")
    assert (outside / "secret").read_bytes() == b"s"
    assert sorted(os.listdir(outside)) == ["secret"]


def test_a_link_to_the_folder_itself_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = Store(tmp_path / "link")
    store.write_bytes("a", b"x")
    assert store.read_bytes("a") == b"x"


def test_publish_names_by_content_and_repeats_converge(store: Store, tmp_path: Path) -> None:
    entries = set()
    for attempt in range(3):
        with store.scratch() as folder:
            entries.add(store.publish(written(store, b"rows", folder), "kind/deep", "00001-ab", 5 + attempt * 0))
    digest = hashlib.sha256(b"rows").hexdigest()
    assert entries == {FileEntry(f"kind/deep/00001-ab-{digest[:16]}.arrow", digest, 4, 5)}
    assert store.list("kind") == [f"kind/deep/00001-ab-{digest[:16]}.arrow"]
    assert store.read_bytes(next(iter(entries)).path) == b"rows"
    with store.scratch() as folder:
        other = store.publish(written(store, b"rows!", folder), "kind/deep", "00001-ab", 5)
    assert len(store.list("kind")) == 2
    assert other.is_named_by_content
    assert not FileEntry.of("manifest.json", b"rows!").is_named_by_content
    assert store.local_copy(other).read_bytes() == b"rows!"


def test_concurrent_attempts_converge(local: Store) -> None:
    entries: list[FileEntry] = []

    def attempt() -> None:
        with local.scratch() as folder:
            entries.append(local.publish(written(local, b"same" * 50_000, folder), "kind", "u", 1))

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(entries)) == 1
    assert local.list("kind") == [entries[0].path]
    assert hash_file(Path(local.root) / entries[0].path) == (entries[0].sha256, entries[0].size)


def test_lists_sorted_relative_paths_that_can_be_used(store: Store) -> None:
    for path in ("b/2", "b/1", "a", "b/c/3"):
        store.write_bytes(path, path.encode())
    assert store.list(".") == ["a", "b/1", "b/2", "b/c/3"]
    assert store.list("b") == store.list("b/") == ["b/1", "b/2", "b/c/3"]
    assert store.list("missing") == []
    assert [store.read_bytes(path) for path in store.list(".")] == [b"a", b"b/1", b"b/2", b"b/c/3"]
    for path in store.list("b"):
        store.delete(path)
    assert store.list(".") == ["a"]


def test_size_and_existence_are_of_files(store: Store) -> None:
    store.write_bytes("a/b", b"12345")
    assert (store.exists("a/b"), store.size("a/b")) == (True, 5)
    assert (store.exists("a"), store.size("a")) == (False, None)
    assert (store.exists("c"), store.size("c")) == (False, None)


def test_a_write_replaces_the_whole_file(store: Store) -> None:
    store.write_bytes("a", b"a long first version")
    store.write_bytes("a", b"short")
    assert store.read_bytes("a") == b"short"
    store.write_bytes("a", b"")
    assert store.read_bytes("a") == b""


def test_json_keeps_the_order_of_keys_and_repeats_its_bytes(store: Store) -> None:
    value = {"b": [1, 2.5, None], "a": "ü✓"}
    store.write_json("x.json", value)
    first = store.read_bytes("x.json")
    store.write_json("x.json", store.read_json("x.json"))
    assert store.read_bytes("x.json") == first
    assert list(store.read_json("x.json")) == ["b", "a"]


def test_missing_and_damaged_files_are_incomplete(store: Store) -> None:
    with pytest.raises(IncompleteError, match="missing"):
        store.read_bytes("no")
    store.write_bytes("bad.json", b'{"a": ')
    with pytest.raises(IncompleteError, match="not JSON"):
        store.read_json("bad.json")
    store.write_bytes("bytes.json", b"\xff\xfe\x00")
    with pytest.raises(IncompleteError, match="not JSON"):
        store.read_json("bytes.json")


def test_nothing_partial_is_visible_before_the_rename(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    local.write_bytes("a/file", b"old")
    seen: list[tuple[list[str], bytes]] = []
    replace = os.replace

    def spy(source: Path, target: Path) -> None:
        visible = [path for path in local.list(".") if not path.startswith(SCRATCH)]
        seen.append((visible, local.read_bytes("a/file")))
        assert Path(source).read_bytes() == b"new content"
        replace(source, target)

    monkeypatch.setattr(os, "replace", spy)
    local.write_bytes("a/file", b"new content")
    assert seen == [(["a/file"], b"old")]
    assert local.read_bytes("a/file") == b"new content"


@pytest.mark.parametrize("is_published", [False, True])
def test_a_file_is_synced_before_its_rename_and_its_folder_after_it(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    """A machine may lose power at any moment."""
    steps: list[tuple[str, int]] = []
    replace = os.replace

    def renaming(source: Path, target: Path) -> None:
        steps.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda descriptor: steps.append(("sync", os.fstat(descriptor).st_ino)))
    monkeypatch.setattr(os, "replace", renaming)
    if is_published:
        path = local.publish(written(local, b"content", tmp_path), "folder", "u", 1).path
    else:
        path = "folder/file"
        local.write_bytes(path, b"content")
    file, folder = (os.stat(Path(local.root, name)).st_ino for name in (path, "folder"))
    assert steps == [("sync", file), ("rename", file), ("sync", folder)]


def test_a_failed_write_leaves_the_old_file_and_no_scratch(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    local.write_bytes("file", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        local.write_bytes("file", b"new")
    assert local.list(".") == ["file"]
    assert local.read_bytes("file") == b"old"


def test_scratch_is_on_the_same_disk_and_goes_away(local: Store) -> None:
    with local.scratch() as folder:
        (folder / "x").write_bytes(b"x")
        assert folder.is_relative_to(Path(local.root).resolve())
        assert os.stat(folder).st_dev == os.stat(local.root).st_dev
    assert not folder.exists()
    assert local.list(".") == []


def test_what_a_killed_attempt_left_is_cleared(local: Store) -> None:
    left = Path(local.root) / SCRATCH / "w-killed"
    left.mkdir(parents=True)
    (left / "half").write_bytes(b"x")
    local.write_bytes("kept", b"x")
    local.clear_scratch()
    local.clear_scratch()
    assert local.list(".") == ["kept"]


def test_local_copy_of_a_remote_file_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store(f"memory://headrace-{uuid.uuid4().hex}")
    with store.scratch() as folder:
        entry = store.publish(written(store, b"content", folder), "k", "u", 1)
    copy = store.local_copy(entry)
    assert copy.read_bytes() == b"content"
    # A copy that was tampered with, or cut short by a kill, is fetched again by the next process.
    copy.write_bytes(b"other")
    monkeypatch.setattr("shards.files._checked", set())
    assert store.local_copy(entry).read_bytes() == b"content"
    copy.unlink()
    monkeypatch.setattr("shards.files._checked", set())
    store.write_bytes(entry.path, b"changed")
    with pytest.raises(IncompleteError, match="is not what was written"):
        store.local_copy(entry)
    assert not copy.exists()


def test_a_local_store_maps_and_copies_nothing(local: Store) -> None:
    with local.scratch() as folder:
        entry = local.publish(written(local, b"content", folder), "k", "u", 1)
    assert local.local_copy(entry) == Path(local.root) / entry.path == local.local_path(entry.path)


def flip(store: Store, path: str, at: int) -> None:
    data = bytearray(store.read_bytes(path))
    data[at] ^= 1
    store.write_bytes(path, bytes(data))


def test_small_files_are_published_under_their_contents_name(store: Store) -> None:
    entry = store.publish_bytes(b"rows", "kind/deep", "00001-ab", ".arrow", 5)
    assert store.publish_bytes(b"rows", "kind/deep", "00001-ab", ".arrow", 5) == entry
    with store.scratch() as folder:
        assert store.publish(written(store, b"rows", folder), "kind/deep", "00001-ab", 5) == entry
    assert store.list("kind") == [entry.path]
    assert (entry.is_named_by_content, entry.size, entry.rows) == (True, 4, 5)
    assert store.read_named(entry.path) == b"rows"


@pytest.mark.parametrize("at", [0, 100_000, 2_999_999])
def test_a_flipped_bit_is_found_when_a_file_is_opened_and_the_file_is_deleted(store: Store, at: int) -> None:
    entry = store.publish_bytes(b"content" * 428_572, "kind", "u", ".arrow", 1)
    flip(store, entry.path, at)
    with pytest.raises(IncompleteError, match=rf"{entry.path} is not what was written") as caught:
        store.open_checked(entry)
    assert caught.value.place == store.root
    assert caught.value.remedy.startswith("Run the recipe again")
    # Whoever looks the pass over finds it missing, and makes it anew.
    assert not store.exists(entry.path)
    with pytest.raises(IncompleteError, match=rf"{entry.path} is missing"):
        store.open_checked(entry)
    assert store.publish_bytes(b"content" * 428_572, "kind", "u", ".arrow", 1) == entry
    for _ in range(2):
        with store.open_checked(entry) as file:
            assert file.read(7) == b"content"


def test_an_empty_file_is_checked_too(store: Store) -> None:
    entry = store.publish_bytes(b"", "kind", "u", ".arrow", 0)
    with store.open_checked(entry) as file:
        assert file.read() == b""
    other = store.publish_bytes(b"", "kind", "v", ".arrow", 0)
    store.write_bytes(other.path, b"x")
    with pytest.raises(IncompleteError):
        store.open_checked(other)


def test_a_local_file_is_checked_before_its_path_is_given_away(local: Store) -> None:
    entry = local.publish_bytes(b"model", "fit_lm/models", "en", ".arpa", 1)
    flip(local, entry.path, 2)
    with pytest.raises(IncompleteError, match="is not what was written"):
        local.local_copy(entry)
    assert not local.exists(entry.path)


@pytest.mark.parametrize("damage", [b"", b"row", b"rowt", b"rows "])
def test_a_file_is_only_read_under_its_contents_name(store: Store, damage: bytes) -> None:
    path = store.publish_bytes(b"rows", "kind", "00001-ab", ".arrow", 5).path
    store.write_bytes(path, damage)
    with pytest.raises(IncompleteError, match=rf"{path} is not what was written"):
        store.read_named(path)
    assert not store.exists(path)
    with pytest.raises(IncompleteError, match="is missing"):
        store.read_named(path)


def test_who_only_reads_deletes_nothing_and_is_told_what_does(local: Store) -> None:
    path = local.publish_bytes(b"rows", "kind", "u", ".arrow", 5).path
    flip(local, path, 0)
    with pytest.raises(IncompleteError) as caught:
        Store(local.root).read_named(path)
    assert caught.value.remedy.startswith(f"Run 'headrace verify {local.root}'")
    assert local.exists(path)


def test_a_copy_stands_in_for_what_is_missing_or_damaged(store: Store) -> None:
    path, copy = (store.publish_bytes(b"rows", folder, "u", ".arrow", 1).path for folder in ("kind", "copy"))
    flip(store, path, 1)
    for _ in range(2):
        assert store.read_named(path, copy) == b"rows"
        assert not store.exists(path)
    flip(store, copy, 1)
    with pytest.raises(IncompleteError, match=r"copy/u-\w+\.arrow is not what was written"):
        store.read_named(path, copy)


def test_what_was_cut_short_on_its_way_is_read_again(local: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = local.publish_bytes(b"rows", "kind", "u", ".arrow", 5).path
    read, calls = Store.read_bytes, list[str]()

    def short(self: Store, name: str) -> bytes:
        calls.append(name)
        return read(self, name)[: -1 if len(calls) == 1 else None]

    monkeypatch.setattr(Store, "read_bytes", short)
    assert local.read_named(path) == b"rows"
    assert len(calls) == 2


def test_sizes_come_from_one_listing(store: Store) -> None:
    for path, data in (("b/2", b"12"), ("b/1", b""), ("a", b"1"), ("b/c/3", b"123")):
        store.write_bytes(path, data)
    assert store.sizes(".") == {"a": 1, "b/1": 0, "b/2": 2, "b/c/3": 3}
    assert list(store.sizes("b")) == ["b/1", "b/2", "b/c/3"]
    assert store.sizes("missing") == {}


def test_a_folder_is_deleted_with_all_that_is_in_it(store: Store) -> None:
    for path in ("a/b/1", "a/2", "ab/3"):
        store.write_bytes(path, b"x")
    store.delete_folder("a")
    store.delete_folder("a")
    store.delete_folder("never there")
    assert store.list(".") == ["ab/3"]
    with pytest.raises(UserError, match="leads out"):
        store.delete_folder("../a")


def test_a_remote_store_has_no_local_path() -> None:
    assert Store("memory://x").local_path("a") is None


def test_file_uris_are_local(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}")
    store.write_bytes("a", b"x")
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_file_is_created_only_where_there_is_none_if_the_client_can(store: Store) -> None:
    created = store.create("a/mark", b"first")
    if store.is_local:
        assert created is None
        assert not store.exists("a/mark")
        return
    assert created is True
    assert store.create("a/mark", b"second") is False
    assert store.read_bytes("a/mark") == b"first"


def test_files_directly_in_the_folder_are_listed_with_their_times(store: Store) -> None:
    assert store.files_in_root() == {}
    store.write_bytes("a", b"x")
    store.write_bytes("below/b", b"x")
    (name,) = found = store.files_in_root()
    assert name == "a"
    assert found[name] is None or found[name] > 0


def test_a_file_is_fetched(store: Store, tmp_path: Path) -> None:
    store.write_bytes("a", b"x" * 3_000_000)
    store.fetch("a", tmp_path / "new" / "copy")
    assert (tmp_path / "new" / "copy").read_bytes() == b"x" * 3_000_000
    with pytest.raises(IncompleteError, match="b is missing"):
        store.fetch("b", tmp_path / "other")


def test_an_error_of_the_system_names_its_file(local: Store) -> None:
    local.write_bytes("a/file", b"x")
    with pytest.raises(FileExistsError) as caught:
        local.write_bytes("a/file/below", b"x")
    assert caught.value.filename.startswith(local.root)
    with pytest.raises(FileNotFoundError) as caught:
        local.delete("none")
    assert caught.value.filename == f"{local.root}/none"


def test_scratch_of_a_remote_store_is_cleared_on_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    remote, other = (Store(f"memory://headrace-{uuid.uuid4().hex}/run") for _ in range(2))
    kept = other.scratch()
    kept.__enter__()
    with remote.scratch() as folder:
        (folder / "half").write_bytes(b"x")
        remote.clear_scratch()
        assert not folder.exists()
    remote.clear_scratch()
    assert len([path for path in tmp_path.rglob("w-*") if path.is_dir()]) == 1
    kept.__exit__(None, None, None)
