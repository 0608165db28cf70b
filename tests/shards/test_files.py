from __future__ import annotations

import hashlib
import os
import uuid
from pathlib import Path

import pytest

from shards.errors import IncompleteError, UserError
from shards.files import cached_copy, fetch, file_system, hash_file, open_input, with_hash
from shards.store import Store


def test_a_fetched_file_is_compared_with_the_hash_in_its_uri(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store(f"memory://headrace-{uuid.uuid4().hex}")
    entry = store.publish_bytes(b"a model", "models", "en", ".arpa", 1)
    assert fetch(store.checked_uri(entry)).read_bytes() == b"a model"
    other = store.publish_bytes(b"a modem", "models", "de", ".arpa", 1)
    store.write_bytes(other.path, b"a model")
    with pytest.raises(IncompleteError, match="is not what was written"):
        fetch(store.checked_uri(other))


def test_an_unknown_scheme_is_the_users_to_fix() -> None:
    with pytest.raises(UserError, match="no file system for nonsense://"):
        file_system("nonsense://bucket/path")


def test_open_input_does_not_decompress_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(b"plain after all")
    with open_input(str(tmp_path / "x.gz")) as file:
        assert file.read() == b"plain after all"
    with pytest.raises(FileNotFoundError):
        open_input(str(tmp_path / "none"))


def test_a_local_file_is_its_own_copy_and_a_remote_one_is_copied_once_per_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert fetch("/models/lid.bin") == Path("/models/lid.bin")
    store = Store(f"memory://headrace-{uuid.uuid4().hex}")
    store.write_bytes("a.bin", b"one")
    copy = fetch(store.uri("a.bin"))
    assert (copy.read_bytes(), copy.suffix) == (b"one", ".bin")
    before = copy.stat().st_mtime_ns
    assert fetch(store.uri("a.bin")) == copy
    assert copy.stat().st_mtime_ns == before
    store.write_bytes("a.bin", b"longer")
    assert fetch(store.uri("a.bin")).read_bytes() == b"longer"


def test_a_copy_cut_short_by_a_kill_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    store = Store(f"memory://headrace-{uuid.uuid4().hex}")
    store.write_bytes("a", b"whole")
    sha256 = hashlib.sha256(b"whole").hexdigest()
    copy = cached_copy(store.uri("a"), sha256)
    copy.write_bytes(b"who")
    monkeypatch.setattr("shards.files._checked", set())
    assert cached_copy(store.uri("a"), sha256).read_bytes() == b"whole"
    assert fetch(with_hash(store.uri("a"), sha256)) == copy


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 21) + 3])
def test_a_hash_is_of_the_whole_file(tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    assert hash_file(tmp_path / "a") == (hashlib.sha256(data).hexdigest(), size)
