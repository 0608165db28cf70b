"""Disks that are full or closed, sources that vanish, memory that is limited: one message with place and remedy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.beam.runners import LocalRunner
from pipelines.driver import check, curate
from pipelines.failures import explained
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from tests.integration.small import Mount, ended, start, write_small
from tests.integration.support import content, headrace
from tests.pipelines.support import Silent

pytestmark = pytest.mark.integration


def test_a_full_disk_is_one_message_and_the_run_goes_on_when_there_is_room(
    small_recipe: Path, small_run: Path, mount: Mount
) -> None:
    # Enough for what is estimated, and not for small files, which take a page each.
    place = mount("-t", "tmpfs", "-o", "size=600k", "tmpfs")
    command = ("run", small_recipe, "--out", place / "run", "--workers", "2", "--no-train")
    code, said = ended(start(*command))
    what, where, remedy = said.splitlines()
    assert code == 1
    assert what == "error: No space left on device"
    assert where.startswith(f"  where: {place / 'run'}/")
    assert "(in pass " in where
    assert remedy == "  Finished work is kept: run the same command again once there is room"
    assert not (place / "run" / ".scratch").exists()
    code, said = ended(start(*command, "--debug"))
    assert code == 1
    assert "Traceback (most recent call last):" in said
    assert said.splitlines()[-3] == "error: No space left on device"
    mount("-o", "remount,size=100m", remount=True)
    assert ended(start(*command)) == (0, "")
    assert content(place / "run") == content(small_run)


def test_a_finished_run_on_a_read_only_disk_can_be_read_and_not_written(
    small_recipe: Path, small_run: Path, mount: Mount
) -> None:
    place = mount("-o", "bind,ro", str(small_run))
    if os.access(place, os.W_OK):
        mount("-o", "remount,bind,ro", remount=True)
    assert "web" in headrace("inspect", place).stdout
    assert "site.example" in headrace("inspect", place, "--trace", "web:3:2").stdout
    done = headrace("verify", place)
    assert "files are intact" in done.stdout
    assert "read-only" in done.stderr
    code, said = ended(start("run", small_recipe, "--out", place, "--workers", "1", "--no-train"))
    what, where, remedy = said.splitlines()
    assert code == 2
    assert what == "error: Read-only file system"
    assert where.startswith(f"  where: {place}/")
    assert "name another folder" in remedy


@pytest.mark.parametrize("how", ["gone", "changed"])
def test_a_source_that_vanishes_or_changes_after_planning_is_named(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_small(folder)
    table = {"sources": [{"glob": "web-*.jsonl"}], "split_bytes": 10_000, "dedup": {"exact": False, "near": False}}
    workspace = Workspace.of(str(tmp_path / "out"), parse_recipe(table, "test"), str(folder))
    plan = check(workspace)
    victim = folder / "web-1.jsonl"
    before = victim.read_bytes()
    if how == "gone":
        victim.unlink()
    else:
        victim.write_bytes(before.replace(b"a", b"b"))
    with pytest.raises((OSError, ValueError)) as caught:
        curate(workspace, plan, LocalRunner(1), Silent(), last="judge")
    if how == "gone":
        told = explained(caught.value)
        assert told is not None
        assert told.place == f"{victim} (in pass judge)"
        assert "once it is back" in told.remedy
    else:
        assert "web-1.jsonl" in str(caught.value)
        assert "changed" in str(caught.value)
    assert not list((tmp_path / "out").rglob("w-*"))
    victim.write_bytes(before)
    curate(workspace, check(workspace), LocalRunner(1), Silent(), last="judge")


def test_a_limit_on_addresses_is_refused_before_anything_is_read(small_recipe: Path, tmp_path: Path) -> None:
    command = ("run", small_recipe, "--out", tmp_path / "run", "--workers", "2", "--no-train")
    code, said = ended(start(*command, limit="ulimit -v 1500000"))
    assert code == 2
    assert "addresses" in said
    assert "where: ulimit -v" in said
    assert len(said.splitlines()) == 3
    assert not (tmp_path / "run").exists()
