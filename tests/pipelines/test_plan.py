from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.plan import Plan, load_plan, load_sources, make_plan, probe_checksum, save_plan
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from shards.errors import UserError
from shards.store import Store


def workspace(base: Path, sources: Any = "*.jsonl", split_bytes: int = 100) -> Workspace:
    tables = [{"glob": sources}] if isinstance(sources, str) else sources
    recipe = parse_recipe({"sources": tables, "split_bytes": split_bytes}, "test")
    return Workspace.of(str(base / "out"), recipe, str(base))


def planned(made: Workspace) -> Plan:
    plan = make_plan(made, load_sources(made.store))
    save_plan(made.store, plan, load_sources(made.store))
    made.save_recipe()
    return plan


def fill(folder: Path, **sizes: int) -> None:
    for name, size in sizes.items():
        (folder / f"{name}.jsonl").write_bytes(name.encode()[:1] * size)


def paths(plan: Plan) -> list[list[str]]:
    return [[source.path for source in split.sources] for split in plan.splits]


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 120), min_size=1, max_size=8), split_bytes=st.integers(1, 200))
def test_splits_partition_the_sources_and_stay_under_their_size(
    tmp_path: Path, sizes: list[int], split_bytes: int
) -> None:
    base = tmp_path / uuid.uuid4().hex
    base.mkdir()
    fill(base, **{f"s{number}": size for number, size in enumerate(sizes)})
    plan = make_plan(workspace(base, split_bytes=split_bytes))
    assert [source.size for split in plan.splits for source in split.sources] == sizes
    assert [source.index for split in plan.splits for source in split.sources] == list(range(len(sizes)))
    assert all(split.size <= split_bytes or len(split.sources) == 1 for split in plan.splits)
    assert plan.size == sum(sizes)
    # Greedy: no split could have taken the first source of the next.
    for split, following in zip(plan.splits, plan.splits[1:], strict=False):
        assert split.size + following.sources[0].size > split_bytes
    assert make_plan(workspace(base, split_bytes=split_bytes)) == plan


def test_the_table_does_not_depend_on_where_when_or_how_files_were_made(tmp_path: Path) -> None:
    for folder, names in (("one", "abc"), ("other", "cba")):
        (tmp_path / folder).mkdir()
        fill(tmp_path / folder, **dict.fromkeys(names, 60))
        os.utime(tmp_path / folder / "a.jsonl", (0, len(folder)))
    assert make_plan(workspace(tmp_path / "one")) == make_plan(workspace(tmp_path / "other"))


def test_added_files_come_after_and_leave_full_splits_alone(tmp_path: Path) -> None:
    fill(tmp_path, b=60, d=60, f=60)
    before = planned(workspace(tmp_path))
    # "a" sorts first, but was seen later: its documents must not move the others' ids.
    fill(tmp_path, a=30, c=60)
    after = planned(workspace(tmp_path))
    assert [[source.index for source in split.sources] for split in after.splits] == [[0], [1], [2, 3], [4]]
    assert paths(after) == [["b.jsonl"], ["d.jsonl"], ["f.jsonl", "a.jsonl"], ["c.jsonl"]]
    assert [split.name for split in after.splits[:2]] == [split.name for split in before.splits[:2]]
    assert before.splits[2].name != after.splits[2].name


def test_a_removed_file_keeps_its_index_and_may_come_back(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60)
    before = planned(workspace(tmp_path))
    content = (tmp_path / "a.jsonl").read_bytes()
    (tmp_path / "a.jsonl").unlink()
    fill(tmp_path, c=60)
    assert [s.index for split in planned(workspace(tmp_path)).splits for s in split.sources] == [1, 2]
    (tmp_path / "a.jsonl").write_bytes(content)
    after = planned(workspace(tmp_path))
    assert [s.index for split in after.splits for s in split.sources] == [0, 1, 2]
    assert after.splits[0] == before.splits[0]


@pytest.mark.parametrize("change", ["longer", "first byte", "middle byte", "last byte"])
def test_a_changed_source_is_refused(tmp_path: Path, change: str) -> None:
    size = 300_000
    fill(tmp_path, a=size)
    planned(workspace(tmp_path))
    data = bytearray((tmp_path / "a.jsonl").read_bytes())
    at = {"first byte": 0, "middle byte": size // 2, "last byte": size - 1}.get(change)
    if at is None:
        data += b"x"
    else:
        data[at] ^= 1
    (tmp_path / "a.jsonl").write_bytes(data)
    with pytest.raises(UserError, match=r"'a\.jsonl' has changed"):
        planned(workspace(tmp_path))


@pytest.mark.parametrize(
    "change", [{"domain": "books"}, {"licence": "CC0"}, {"priority": 2}, {"text_key": "body"}, {"format": "jsonl"}]
)
def test_settings_of_a_source_are_part_of_its_splits_name(tmp_path: Path, change: dict[str, Any]) -> None:
    fill(tmp_path, a=60)
    before = make_plan(workspace(tmp_path))
    after = make_plan(workspace(tmp_path, [{"glob": "*.jsonl", **change}]))
    assert before.splits[0].name != after.splits[0].name
    assert make_plan(workspace(tmp_path, [{"glob": ["a.jsonl"]}])).splits[0].name == before.splits[0].name


def test_a_file_belongs_to_the_first_table_that_matches(tmp_path: Path) -> None:
    fill(tmp_path, a=10, b=10)
    plan = make_plan(workspace(tmp_path, [{"glob": "b*", "domain": "books"}, {"glob": "*.jsonl"}]))
    assert [(source.path, source.settings) for split in plan.splits for source in split.sources] == [
        ("a.jsonl", 1),
        ("b.jsonl", 0),
    ]


def test_one_file_under_several_names_is_read_once(tmp_path: Path) -> None:
    fill(tmp_path, a=10)
    names = ["a.jsonl", str(tmp_path / "*.jsonl"), f"../{tmp_path.name}/a.jsonl"]
    assert paths(make_plan(workspace(tmp_path, [{"glob": names}]))) == [["a.jsonl"]]


def test_a_name_in_any_script_is_fine(tmp_path: Path) -> None:
    (tmp_path / "żółć\u00a0東京.jsonl").write_bytes(b"{}")
    assert paths(planned(workspace(tmp_path))) == [["żółć\u00a0東京.jsonl"]]


@pytest.mark.parametrize("name", [b"\xff.jsonl", b"line\nbreak.jsonl", b"\x1b[31m.jsonl"])
def test_a_name_that_no_report_could_show_is_refused(tmp_path: Path, name: bytes) -> None:
    with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
        file.write(b"{}")
    with pytest.raises(UserError, match="control characters"):
        make_plan(workspace(tmp_path))


def test_globs_reach_folders_and_leave_folders_out(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er.jsonl").mkdir(parents=True)
    (tmp_path / "deep" / "er.jsonl" / "x.jsonl").write_bytes(b"x")
    fill(tmp_path, a=1)
    assert paths(make_plan(workspace(tmp_path, "**/*.jsonl"))) == [["a.jsonl", "deep/er.jsonl/x.jsonl"]]
    assert paths(make_plan(workspace(tmp_path, str(tmp_path / "a.jsonl")))) == [[str(tmp_path / "a.jsonl")]]


def test_a_glob_without_a_match_is_the_users_to_mend(tmp_path: Path) -> None:
    fill(tmp_path, a=1)
    with pytest.raises(UserError, match=r"'\*\.warc' matches no file") as caught:
        make_plan(workspace(tmp_path, [{"glob": ["*.jsonl", "*.warc"]}]))
    assert caught.value.place == f"recipe, key sources.0.glob, looked in {tmp_path}"


def test_the_plan_is_saved_whole(tmp_path: Path) -> None:
    fill(tmp_path, a=60, b=60, c=1)
    made = workspace(tmp_path)
    plan = planned(made)
    assert load_plan(made.store) == plan
    assert load_plan(made.store).by_name == {split.name: split for split in plan.splits}
    assert json.loads(made.store.read_bytes("plan/plan.json"))["sources"][0]["path"] == "a.jsonl"
    assert load_sources(Store(tmp_path / "nothing")) == []


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a/*.jsonl", ["a/x.jsonl"]),
        ("a/x.jsonl", ["a/x.jsonl"]),
        ("*.jsonl", ["b.jsonl"]),
        ("**/*.jsonl", ["a/c/z.jsonl", "a/x.jsonl", "b.jsonl"]),
        ("a/**/[xz].jsonl", ["a/c/z.jsonl", "a/x.jsonl"]),
        ("?/*/?.jsonl", ["a/c/z.jsonl"]),
    ],
)
@pytest.mark.parametrize("slashes", ["//", "///"])
def test_globs_mean_the_same_on_another_file_system(
    tmp_path: Path, pattern: str, expected: list[str], slashes: str
) -> None:
    folder = f"headrace-{uuid.uuid4().hex}"
    for name in ("a/x.jsonl", "a/y.txt", "b.jsonl", "a/c/z.jsonl"):
        Store(f"memory:{slashes}{folder}").write_bytes(name, name.encode())
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    plan = make_plan(workspace(tmp_path, f"memory:{slashes}{folder}/{pattern}", split_bytes=1))
    assert paths(plan) == [[f"memory:{slashes}{folder}/{name}"] for name in expected]
    local = make_plan(workspace(tmp_path, pattern, split_bytes=1))
    assert paths(local) == [[name] for name in expected]
    for (one,), (other,) in zip([s.sources for s in plan.splits], [s.sources for s in local.splits], strict=True):
        assert (one.size, one.checksum) == (other.size, other.checksum)
        assert probe_checksum(one.path, one.size) == one.checksum


def test_many_small_files_take_no_quadratic_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [(f"{number:06d}", 1, 0) for number in range(20_000)]
    monkeypatch.setattr("pipelines.plan._found", lambda _: iter(files))
    monkeypatch.setattr("pipelines.plan.probe_checksum", lambda path, size: "c")
    fill(tmp_path, a=1)
    plan = make_plan(workspace(tmp_path, split_bytes=1 << 30))
    assert [len(split.sources) for split in plan.splits] == [20_000]
