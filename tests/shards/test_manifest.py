from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from shards import manifest as module
from shards.errors import IncompleteError
from shards.manifest import Manifest, PassFolder
from shards.marker import Marker, from_bytes, markers_in, to_bytes
from shards.store import FileEntry, Store

UNITS = ["00000-aa", "00001-bb", "00002-cc"]
COUNTS = pa.schema([("reason", pa.string()), ("rows", pa.int64()), ("bins", pa.list_(pa.int32()))])


def memory() -> Store:
    return Store(f"memory://headrace-{uuid.uuid4().hex}/run", repairs=True)


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(tmp_path, repairs=True) if request.param == "local" else memory()


def publish(store: Store, unit: str, content: bytes | None = None) -> FileEntry:
    return store.publish_bytes(content or unit.encode() * 3, "judge/documents", unit, ".arrow", 3)


def forget() -> None:
    """Delete all memory stores: one dictionary holds their files, and every listing walks through it."""
    MemoryFileSystem.store.clear()


def rows_of(unit: str) -> list[dict[str, Any]]:
    """The small table of a unit: none, or some rows with nulls and lists."""
    some = random.Random(unit)
    return [
        {"reason": some.choice([None, "short"]), "rows": some.randrange(6), "bins": some.choice([None, [], [1, None]])}
        for _ in range(some.randrange(4))
    ]


def commit(folder: PassFolder, unit: str) -> FileEntry:
    entry = publish(folder.store, unit)
    tables = {"counts": pa.Table.from_pylist(rows_of(unit), COUNTS)}
    folder.commit(Marker(unit, {"documents": entry}, {"rows": len(unit)}, tables))
    return entry


def finished(store: Store, digest: str = "d1", units: Sequence[str] = UNITS) -> PassFolder:
    folder = PassFolder(store, "judge", digest)
    for unit in units:
        commit(folder, unit)
    folder.finish(units)
    return folder


def content(store: Store) -> dict[str, bytes]:
    return {path: store.read_bytes(path) for path in store.list(".")}


def flip(store: Store, path: str, at: int = 0, bit: int = 0) -> None:
    data = bytearray(store.read_bytes(path))
    data[at % len(data)] ^= 1 << bit
    store.write_bytes(path, bytes(data))


@contextmanager
def parts_of(units: int, size: int = 16 << 20) -> Iterator[None]:
    """Manifests in small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "UNITS_PER_PART", units)
        patch.setattr(module, "_PART_BYTES", size)
        yield


def test_a_manifest_gives_back_what_was_committed(store: Store) -> None:
    folder = PassFolder(store, "judge", "d1")
    entries = {unit: commit(folder, unit) for unit in UNITS}
    assert folder.marked() == set(UNITS)
    (row,) = markers_in(folder.survey().row(UNITS[0]))
    assert (row.unit, row.files, row.statistics) == (UNITS[0], {"documents": entries[UNITS[0]]}, {"rows": 8})
    folder.finish(UNITS)
    manifest = folder.manifest()
    assert manifest.units == tuple(UNITS)
    assert {unit: marker.files["documents"] for unit, marker in manifest.by_unit.items()} == entries
    assert [marker.statistics for marker in manifest.markers()] == [{"rows": len(unit)} for unit in UNITS]
    assert manifest.table("counts").to_pylist() == [{"unit": u, **row} for u in UNITS for row in rows_of(u)]
    # Their markers are folded, and gone.
    assert folder.marked() == set()
    assert sum(path.startswith("judge/manifest") for path in store.list("judge")) == 3


def test_a_kill_between_files_and_marker_leaves_the_unit_pending(store: Store) -> None:
    folder = PassFolder(store, "judge", "d1")
    commit(folder, UNITS[0])
    publish(store, UNITS[1])
    survey = folder.survey()
    assert survey.pending(UNITS) == UNITS[1:]
    assert not survey.is_finished(UNITS[:1])
    with pytest.raises(IncompleteError, match=UNITS[1]):
        folder.finish(UNITS)
    with pytest.raises(IncompleteError, match="not finished"):
        folder.manifest()


def test_a_marker_counts_only_with_its_digest(store: Store) -> None:
    commit(PassFolder(store, "judge", "d1"), UNITS[0])
    other = PassFolder(store, "judge", "d2")
    assert other.survey().pending(UNITS[:1]) == UNITS[:1]
    assert other.marked() == set()
    assert PassFolder(store, "judge", "d1").survey().pending(UNITS[:1]) == []


@pytest.mark.parametrize("folded", [False, True], ids=["marker", "manifest"])
@pytest.mark.parametrize("damage", ["missing", "short", "long"])
def test_a_unit_counts_only_with_all_files_in_full_size(store: Store, damage: str, folded: bool) -> None:
    folder = PassFolder(store, "judge", "d1")
    entries = [commit(folder, unit) for unit in UNITS]
    if folded:
        folder.finish(UNITS)
        assert folder.survey().is_finished(UNITS)
    path = entries[1].path
    data = store.read_bytes(path)
    if damage == "missing":
        store.delete(path)
    else:
        store.write_bytes(path, data[:-1] if damage == "short" else data + b"x")
    survey = folder.survey()
    assert not survey.is_finished(UNITS)
    assert survey.pending(UNITS) == [UNITS[1]]
    with pytest.raises(IncompleteError, match=UNITS[1]):
        folder.finish(UNITS)
    commit(folder, UNITS[1])
    folder.finish(UNITS)
    assert folder.survey().is_finished(UNITS)


def test_a_manifest_is_of_its_digest(store: Store) -> None:
    finished(store)
    other = PassFolder(store, "judge", "d2")
    assert not other.survey().is_finished(UNITS)
    with pytest.raises(IncompleteError):
        other.manifest()


def test_a_manifest_is_finished_only_for_its_units(store: Store) -> None:
    survey = finished(store).survey()
    assert survey.is_finished(UNITS)
    assert not survey.is_finished([*UNITS, "00003-dd"])
    assert not survey.is_finished(UNITS[:-1])
    assert not survey.is_finished(UNITS[::-1])
    assert not survey.is_finished(["00000-xx", *UNITS[1:]])


def test_no_manifest_is_not_finished(store: Store) -> None:
    survey = PassFolder(store, "judge", "d1").survey()
    assert not survey.is_finished(UNITS)
    assert not survey.is_finished([])


def test_a_pass_without_units_can_be_finished(store: Store) -> None:
    folder = PassFolder(store, "near_pairs", "d1")
    folder.finish([])
    assert folder.survey().is_finished([])
    assert folder.manifest().units == ()
    assert folder.manifest().table("counts").num_rows == 0


def test_a_unit_is_taken_over_into_other_units_work(store: Store) -> None:
    """A source was added: what is in the manifest already is not made again."""
    folder = finished(store)
    before = folder.manifest().by_unit
    added = ["00000-aa", "00000-zz", *UNITS[1:]]
    assert folder.survey().pending(added) == ["00000-zz"]
    commit(folder, "00000-zz")
    folder.finish(added)
    assert folder.manifest().units == tuple(added)
    assert {unit: folder.manifest().by_unit[unit] for unit in UNITS} == before


@settings(deadline=None, max_examples=15)
@given(
    order=st.permutations(range(6)),
    again=st.lists(st.integers(0, 5), max_size=3),
    units_per_part=st.integers(1, 7),
    part_bytes=st.sampled_from([1, 500, 900, 1 << 20]),
)
def test_neither_the_order_of_commits_nor_the_size_of_parts_changes_what_is_read(
    order: list[int], again: list[int], units_per_part: int, part_bytes: int
) -> None:
    forget()
    units = [f"{number:05d}-x" for number in range(6)]
    plain = finished(memory(), units=units)
    with parts_of(units_per_part, part_bytes):
        expected = finished(memory(), units=units)
        folder = PassFolder(memory(), "judge", "d1")
        for number in [*order, *again]:
            commit(folder, units[number])
        folder.finish(units)
        assert content(folder.store) == content(expected.store)
        for one in (plain, folder):
            assert one.survey().is_finished(units)
        assert -(-6 // units_per_part) <= len(folder.manifest().parts) <= 6
    told = [what_is_read(one.manifest()) for one in (plain, folder)]
    assert told[0] == told[1]


def what_is_read(manifest: Manifest) -> tuple[Any, ...]:
    digests = [manifest.digest(kind) for kind in ("documents", "rows", "counts")]
    return manifest.units, dict(manifest.by_unit), manifest.table("counts").to_pylist(), digests


@settings(deadline=None, max_examples=15)
@given(
    lost=st.sets(st.integers(0, 5), min_size=1),
    units_per_part=st.integers(1, 7),
    part_bytes=st.integers(100, 1_500),
)
def test_a_repaired_manifest_is_the_one_before(lost: set[int], units_per_part: int, part_bytes: int) -> None:
    """Slices of old parts and new markers come together to the same parts, wherever these are cut."""
    forget()
    units = [f"{number:05d}-x" for number in range(6)]
    with parts_of(units_per_part, part_bytes):
        folder = finished(memory(), units=units)
        before = content(folder.store)
        for number in lost:
            folder.store.delete(folder.manifest().by_unit[units[number]].files["documents"].path)
        pending = folder.survey().pending(units)
        assert pending == [units[number] for number in sorted(lost)]
        for unit in pending:
            commit(folder, unit)
        folder.finish(units)
        assert content(folder.store) == before


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.sampled_from([None, "short"]), max_size=40), max_size=12), st.integers(1, 6_000))
def test_parts_are_cut_alike_wherever_their_rows_lay(reasons: list[list[str | None]], part_bytes: int) -> None:
    """Buffers of a slice may hold more than its values: their size must not say where a part ends."""
    schema = COUNTS.remove(1).remove(1)
    tables = [pa.Table.from_pylist([{"reason": reason} for reason in rows], schema) for rows in reasons]
    fresh = [Marker(f"{at}", {}, {}, {"counts": table}).to_table() for at, table in enumerate(tables)]
    whole = from_bytes(to_bytes(pa.concat_tables(fresh))) if fresh else pa.table({})
    slices = [whole.slice(at, 1) for at in range(len(fresh))]
    with parts_of(512, part_bytes):
        cuts = [[part.num_rows for part in module._parts(rows)] for rows in (fresh, slices)]
    assert cuts[0] == cuts[1]
    assert sum(cuts[0]) == len(fresh)


def test_parts_are_bounded_in_units_and_bytes() -> None:
    units = [f"{number:05d}-x" for number in range(7)]
    with parts_of(3):
        parts = list(finished(memory(), units=units).manifest().tables())
        assert [part.num_rows for part in parts] == [3, 3, 1]
    with parts_of(512, 1):
        assert [part.num_rows for part in finished(memory(), units=units).manifest().tables()] == [1] * 7


def test_a_digest_is_of_the_kind_that_it_is_asked_for() -> None:
    """One thing of one unit is changed at a time: the digest of that kind follows, and no other."""
    kinds = ("documents", "keys", "rows", "bytes", "counts", "bins")

    def digests(changed: str = "", number: int = 1) -> dict[str, str]:
        folder = PassFolder(memory(), "judge", "d1")
        for unit in UNITS:
            mark = "changed" if unit == UNITS[number] else "as it was"
            said = {kind: f"{kind}, {mark if kind == changed else 'as it was'}" for kind in kinds}
            files = {k: folder.store.publish_bytes(said[k].encode(), f"judge/{k}", unit, ".x", 1) for k in kinds[:2]}
            tables = {k: pa.table({"value": [said[k]]}) for k in kinds[4:]}
            folder.commit(Marker(unit, files, {k: said[k] for k in kinds[2:4]}, tables))
        folder.finish(UNITS)
        return {kind: folder.manifest().digest(kind) for kind in kinds}

    before = digests()
    assert len(set(before.values())) == 6
    for kind in kinds:
        after = digests(kind)
        assert {k for k in kinds if after[k] != before[k]} == {kind}
        assert digests(kind, 2)[kind] != after[kind]


def test_finish_sweeps_what_no_marker_names(store: Store) -> None:
    folder = PassFolder(store, "judge", "d1")
    for unit in UNITS:
        commit(folder, unit)
    orphan = publish(store, UNITS[0], b"written by an attempt that died")
    commit(PassFolder(store, "judge", "d0"), "00009-old")
    for path in ("judged/other-pass", "recipe.json", "judge/work/00000-abc.jsonl"):
        store.write_bytes(path, b"something")
    folder.finish(UNITS)
    left = store.list(".")
    assert orphan.path not in left
    assert not [path for path in left if "00009-old" in path or "/work/" in path or "/markers/" in path]
    assert {"judged/other-pass", "recipe.json", "judge/manifest.json"} < set(left)
    assert folder.survey().is_finished(UNITS)


def test_files_in_further_folders_count_and_those_of_another_pass_are_left_alone(store: Store) -> None:
    folder = PassFolder(store, "write", "d1", ("shards",), ("shards/other",))
    entry = store.publish_bytes(b"tokens", "shards/web/train", "u", ".arrow", 1)
    store.write_bytes("shards/other", b"of another pass")
    store.write_bytes("shards/stray", b"of an attempt that died")
    folder.commit(Marker("u", {"tokens": entry}))
    folder.finish(["u"])
    assert folder.survey().is_finished(["u"])
    assert store.read_bytes("shards/other") == b"of another pass"
    assert not store.exists("shards/stray")
    store.delete(entry.path)
    assert folder.survey().pending(["u"]) == ["u"]


def test_a_file_of_a_fixed_name_counts_only_with_its_content(store: Store) -> None:
    folder = PassFolder(store, "schedule", "d1")
    store.write_bytes("schedule.json", b"rate 0.001")
    folder.commit(Marker("all", {"schedule": FileEntry.of("schedule.json", b"rate 0.001")}))
    folder.finish(["all"])
    assert folder.survey().is_finished(["all"])
    # Another recipe's, of the same size, whose run was killed before its marker.
    store.write_bytes("schedule.json", b"rate 0.002")
    assert not folder.survey().is_finished(["all"])
    assert folder.survey().pending(["all"]) == ["all"]


@pytest.mark.parametrize("named_by_content", [False, True])
def test_a_marker_never_leads_out(tmp_path: Path, named_by_content: bool) -> None:
    store = Store(tmp_path / "run")
    inside = store.publish_bytes(b"secret", "judge", "x", ".arrow", 1)
    (tmp_path / Path(inside.path).name).write_bytes(b"secret")
    outside = FileEntry(f"../{Path(inside.path).name}", inside.sha256, inside.size, 1)
    folder = PassFolder(store, "judge", "d1")
    if named_by_content:
        folder.commit(Marker("u", {"x": outside}))
        assert folder.survey().pending(["u"]) == ["u"]
        return
    folder.commit(Marker("u", {"x": FileEntry.of("../../etc/passwd", b"x")}))
    with pytest.raises(ValueError, match="leads out"):
        folder.survey()


def test_another_recipes_marker_leaves_a_finished_pass_as_it_is(store: Store) -> None:
    folder = finished(store)
    entry = folder.manifest().by_unit[UNITS[0]].files["documents"]
    other = PassFolder(store, folder.name, "another digest")
    other.commit(Marker(UNITS[0], {"documents": entry}))
    assert folder.survey().is_finished(UNITS)
    assert other.survey().pending(UNITS) == UNITS[1:]
    # From here on the folder is the other's.
    other.finish(UNITS[:1])
    assert other.survey().is_finished(UNITS[:1])
    assert folder.survey().pending(UNITS) == UNITS
    with pytest.raises(IncompleteError):
        folder.manifest()


FOLDED: dict[str, Callable[[str], bool]] = {
    "index": lambda path: path == "judge/manifest.json",
    "part": lambda path: path.startswith("judge/manifest/00001"),
    "copy": lambda path: path.startswith("judge/manifest/copy/00001"),
}


@pytest.mark.parametrize("kind", FOLDED)
@pytest.mark.parametrize("damage", ["first bit", "last bit", "a bit within", "lost", "cut"])
def test_damage_to_a_manifest_is_found_and_repaired_and_nothing_is_redone(store: Store, kind: str, damage: str) -> None:
    with parts_of(2):
        folder = finished(store)
        before = content(store)
        (path,) = filter(FOLDED[kind], before)
        size = len(before[path])
        if damage == "lost":
            store.delete(path)
        elif damage == "cut":
            store.write_bytes(path, before[path][: size // 2])
        else:
            flip(store, path, {"first bit": 0, "last bit": -1, "a bit within": size // 2}[damage], bit=3)
        survey = folder.survey()
        assert not survey.is_finished(UNITS)
        assert survey.pending(UNITS) == []
        folder.finish(UNITS)
        assert content(store) == before
        assert folder.survey().is_finished(UNITS)


@pytest.mark.parametrize("kind", ["part", "copy"])
def test_whoever_reads_a_manifest_takes_the_copy_of_a_damaged_part(store: Store, kind: str) -> None:
    with parts_of(2):
        folder = finished(store)
        expected = what_is_read(folder.manifest())
        (path,) = filter(FOLDED[kind], store.list("."))
        flip(store, path, -9)
        assert what_is_read(folder.manifest()) == expected


def test_a_damaged_index_is_not_read(store: Store) -> None:
    folder = finished(store)
    flip(store, folder.index_path, 40)
    with pytest.raises(IncompleteError, match="not finished") as caught:
        folder.manifest()
    assert caught.value.remedy.startswith("Run the recipe again")


def test_where_a_part_and_its_copy_are_damaged_its_units_are_made_again(store: Store) -> None:
    with parts_of(2):
        folder = finished(store)
        before = content(store)
        for kind in ("part", "copy"):
            (path,) = filter(FOLDED[kind], before)
            flip(store, path, 100)
        with pytest.raises(IncompleteError, match=r"00001\.d1.* is not what was written"):
            list(folder.manifest().markers())
        assert folder.survey().pending(UNITS) == UNITS[2:]
        commit(folder, UNITS[2])
        folder.finish(UNITS)
        assert content(store) == before


@pytest.mark.parametrize("at", [0, 50, -1])
def test_a_damaged_marker_is_no_marker_and_its_unit_alone_is_made_again(store: Store, at: int) -> None:
    expected = content(finished(memory()).store)
    folder = PassFolder(store, "judge", "d1")
    for unit in UNITS:
        commit(folder, unit)
    (path,) = [path for path in store.list("unfinished/judge/markers") if UNITS[1] in path]
    flip(store, path, at)
    assert folder.survey().pending(UNITS) == [UNITS[1]]
    # It is deleted, so that progress does not count it either.
    assert folder.marked() == {UNITS[0], UNITS[2]}
    commit(folder, UNITS[1])
    folder.finish(UNITS)
    assert content(store) == expected


def calls_of(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> Counter[str]:
    """Count what is asked of a store meanwhile."""
    calls: Counter[str] = Counter()
    with monkeypatch.context() as patch:
        for name in ("sizes", "size", "exists", "open"):
            original = getattr(Store, name)

            def counted(self: Store, path: str, name: str = name, original: Any = original) -> Any:
                calls[name] += 1
                return original(self, path)

            patch.setattr(Store, name, counted)
        action()
    return calls


def test_a_pass_is_looked_over_without_a_call_for_each_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {}
    for count in (3, 300):
        units = [f"{number:05d}-x" for number in range(count)]
        folder = finished(memory(), units=units)
        counted[count] = calls_of(monkeypatch, lambda folder=folder, units=units: folder.survey().is_finished(units))
        assert calls_of(monkeypatch, folder.marked) == {"sizes": 1}
    assert counted[3] == counted[300]
    # One of the pass, and one of what it keeps until it is finished.
    assert counted[3]["sizes"] == 2
    assert counted[3]["size"] == 0
