from __future__ import annotations

import itertools
import json
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shards.errors import IncompleteError
from shards.manifest import PassFolder, digest_of
from shards.store import FileEntry, Store

UNITS = ["00000-aa", "00001-bb", "00002-cc"]

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé\U0001f600"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path if request.param == "local" else f"memory://headrace-{uuid.uuid4().hex}/run")


def publish(store: Store, unit: str, content: bytes | None = None) -> FileEntry:
    with store.scratch() as folder:
        path = folder / "x.arrow"
        path.write_bytes(content or unit.encode() * 3)
        return store.publish(path, "judge/documents", unit, 3)


def commit(folder: PassFolder, unit: str) -> FileEntry:
    entry = publish(folder.store, unit)
    folder.commit(unit, {"documents": entry}, {"rows": len(unit)})
    return entry


def finished(store: Store, digest: str = "d1") -> PassFolder:
    folder = PassFolder(store, "judge", digest)
    for unit in UNITS:
        commit(folder, unit)
    folder.finish(UNITS)
    return folder


@given(JSON)
def test_a_digest_does_not_depend_on_the_order_of_keys(value: object) -> None:
    def turned(part: object) -> object:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(list(part))}
        return [turned(item) for item in part] if isinstance(part, list) else part

    assert digest_of(value) == digest_of(turned(value))
    assert digest_of([value]) != digest_of(value)


def test_a_digest_refuses_what_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        digest_of(float("nan"))
    with pytest.raises(TypeError):
        digest_of({1, 2})


def test_a_marker_gives_back_what_was_committed(store: Store) -> None:
    folder = PassFolder(store, "judge", "d1")
    entry = commit(folder, UNITS[0])
    marker = folder.require(UNITS[0])
    assert marker.files == {"documents": entry}
    assert marker.statistics == {"rows": len(UNITS[0])}
    assert (marker.unit, marker.digest) == (UNITS[0], "d1")


def test_a_kill_between_files_and_marker_leaves_the_unit_pending(store: Store) -> None:
    folder = PassFolder(store, "judge", "d1")
    commit(folder, UNITS[0])
    publish(store, UNITS[1])
    assert folder.pending(UNITS) == UNITS[1:]
    assert folder.marker(UNITS[1]) is None
    with pytest.raises(IncompleteError, match=UNITS[1]):
        folder.require(UNITS[1])
    with pytest.raises(IncompleteError, match=UNITS[1]):
        folder.finish(UNITS)
    assert not folder.is_finished()


def test_a_marker_counts_only_with_its_digest(store: Store) -> None:
    commit(PassFolder(store, "judge", "d1"), UNITS[0])
    assert PassFolder(store, "judge", "d2").pending(UNITS[:1]) == UNITS[:1]
    assert PassFolder(store, "judge", "d1").pending(UNITS[:1]) == []


@pytest.mark.parametrize("damage", ["missing", "short", "long"])
def test_a_marker_and_a_manifest_count_only_with_all_files_in_full_size(store: Store, damage: str) -> None:
    folder = finished(store)
    assert folder.is_finished()
    path = folder.require(UNITS[1]).files["documents"].path
    data = store.read_bytes(path)
    if damage == "missing":
        store.delete(path)
    else:
        store.write_bytes(path, data[:-1] if damage == "short" else data + b"x")
    assert not folder.is_finished()
    assert folder.pending(UNITS) == [UNITS[1]]
    with pytest.raises(IncompleteError, match="not finished"):
        folder.manifest()
    commit(folder, UNITS[1])
    assert folder.is_finished()


def test_a_manifest_is_of_its_digest(store: Store) -> None:
    finished(store)
    other = PassFolder(store, "judge", "d2")
    assert not other.is_finished()
    with pytest.raises(IncompleteError):
        other.manifest()


def test_a_manifest_is_finished_only_for_its_units(store: Store) -> None:
    folder = finished(store)
    assert folder.is_finished(UNITS)
    assert not folder.is_finished([*UNITS, "00003-dd"])
    assert not folder.is_finished(UNITS[:-1])
    assert not folder.is_finished(["00000-xx", *UNITS[1:]])


def test_no_manifest_is_not_finished(store: Store) -> None:
    assert not PassFolder(store, "judge", "d1").is_finished()
    assert not PassFolder(store, "judge", "d1").is_finished([])


def test_a_pass_without_units_can_be_finished(store: Store) -> None:
    folder = PassFolder(store, "near_pairs", "d1")
    folder.finish([])
    assert folder.is_finished([])
    assert folder.manifest()["units"] == []


def test_the_manifest_does_not_depend_on_the_order_of_commits(tmp_path: Path) -> None:
    manifests = set()
    for number, order in enumerate(itertools.permutations(UNITS)):
        folder = PassFolder(Store(tmp_path / str(number)), "judge", "d1")
        for unit in order:
            commit(folder, unit)
            commit(folder, unit)
        folder.finish(UNITS)
        manifests.add(folder.store.read_bytes("judge/manifest.json"))
    assert len(manifests) == 1
    assert [unit["unit"] for unit in json.loads(manifests.pop())["units"]] == UNITS


def test_finish_sweeps_what_no_marker_names(store: Store) -> None:
    folder = PassFolder(store, "judge", "d1")
    for unit in UNITS:
        commit(folder, unit)
    orphan = publish(store, UNITS[0], b"written by an attempt that died")
    commit(PassFolder(store, "judge", "d0"), "00009-old")
    store.write_bytes("judged/other-pass", b"stays")
    store.write_bytes("recipe.json", b"stays")
    folder.finish(UNITS)
    left = store.list(".")
    assert orphan.path not in left
    assert not [path for path in left if "00009-old" in path]
    assert {"judged/other-pass", "recipe.json", "judge/manifest.json"} < set(left)
    assert folder.is_finished()
    assert folder.pending(UNITS) == []


def test_files_of_a_marker_outside_the_folder_are_left_alone(store: Store) -> None:
    folder = PassFolder(store, "write", "d1")
    store.write_bytes("shards/a", b"tokens")
    folder.commit("u", {"tokens": FileEntry.of("shards/a", b"tokens")}, {})
    folder.finish(["u"])
    assert store.read_bytes("shards/a") == b"tokens"


def test_a_file_of_a_fixed_name_counts_only_with_its_content(store: Store) -> None:
    folder = PassFolder(store, "schedule", "d1")
    store.write_bytes("schedule.json", b"rate 0.001")
    folder.commit("all", {"schedule": FileEntry.of("schedule.json", b"rate 0.001")}, {})
    folder.finish(["all"])
    assert folder.is_finished()
    # Another recipe's, of the same size, whose run was killed before its marker.
    store.write_bytes("schedule.json", b"rate 0.002")
    assert not folder.is_finished()
    assert folder.pending(["all"]) == ["all"]


def test_a_marker_that_leads_out_is_refused(store: Store) -> None:
    folder = finished(store)
    marker = f"judge/markers/{UNITS[0]}.json"
    value = store.read_json(marker)
    value["files"]["documents"]["path"] = "../../etc/passwd"
    store.write_json(marker, value)
    with pytest.raises(ValueError, match="leads out"):
        folder.is_finished()


def test_a_damaged_marker_is_no_marker(store: Store) -> None:
    folder = finished(store)
    store.write_bytes(f"judge/markers/{UNITS[0]}.json", b"{")
    assert folder.pending(UNITS) == [UNITS[0]]
    with pytest.raises(IncompleteError, match=UNITS[0]):
        folder.require(UNITS[0])


def test_another_recipe_s_marker_in_a_finished_pass_makes_it_unfinished(store: Store) -> None:
    folder = finished(store)
    assert folder.is_finished()
    other = PassFolder(store, folder.name, "another digest")
    other.commit(UNITS[0], folder.require(UNITS[0]).files, {})
    assert not folder.is_finished()
    assert folder.pending(UNITS) == [UNITS[0]]
