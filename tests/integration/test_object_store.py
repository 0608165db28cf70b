"""Runs on S3, by pyarrow's own client against moto's server: with faults, kills, resumption and few requests."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.beam.base import BeamPass
from pipelines.beam.runners import LocalRunner
from pipelines.driver import check, curate
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from tests.integration.object_store import BUCKET, NO_FAULT, Fault, ObjectStore, Request, object_store
from tests.integration.small import Mount, ended, group, start
from tests.integration.support import content, headrace
from tests.pipelines.conftest import make_corpus
from tests.pipelines.support import Silent

pytestmark = pytest.mark.integration

KILLS = int(os.environ.get("HEADRACE_KILLS", "1"))
SEED = int(os.environ.get("HEADRACE_SEED", "9"))
MOST_REQUESTS = 15
"""For each split in each pass."""
NOT_YET: tuple[str, ...] = ()
"""Passes that still take more: a list to be emptied, and not one to grow."""


@pytest.fixture
def s3() -> Iterator[ObjectStore]:
    with object_store() as store:
        yield store


def seeded_faults(seed: int) -> Fault:
    """A fault by chance: of a hundred requests, two are refused, one is slow, and two answers are cut."""
    drawn = random.Random(seed).randrange(100)
    if drawn < 2:
        return Fault(status=(500, 503)[drawn])
    if drawn < 3:
        return Fault(seconds=1.5)
    return Fault(is_cut=drawn < 5)


def test_faults_and_kills_change_no_byte_and_leave_nothing(
    s3: ObjectStore, small_recipe: Path, small_run: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    root = f"s3://{BUCKET}/deep/run"
    s3.fault = lambda number, request: seeded_faults(SEED * 1_000_003 + number)
    moments = random.Random(SEED)
    command = ("run", small_recipe, "--out", root, "--workers", "2", "--no-train")
    for _ in range(KILLS):
        process = start(*command, temporary=temporary)
        time.sleep(moments.uniform(3, 20))
        for pid in group(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.communicate()
    code, said = ended(start(*command, temporary=temporary))
    # It is told that there was an owner, which has ended.
    assert code == 0, said
    s3.fault = lambda number, request: NO_FAULT
    found = s3.objects("deep/run/")
    tmp_path.joinpath("copy").mkdir()
    for name, data in found.items():
        if not name.endswith("/") and name:
            path = tmp_path / "copy" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    assert content(tmp_path / "copy") == content(small_run)
    # Nothing but the run's own folder: no mark of an owner, no folders as objects.
    assert [name for name in found if name.endswith("/") or name.startswith((".owner", "unfinished"))] == []
    assert not [path for path in temporary.rglob("*") if path.is_dir() and path.name.startswith(("w-", "beam"))]
    assert not list(temporary.rglob("*.partial"))
    assert "web" in headrace("inspect", root).stdout
    remote, local = (headrace("inspect", of, "--trace", "web:3:2").stdout for of in (root, small_run))
    assert remote == local


def test_a_store_that_is_gone_is_one_message_and_a_second_driver_is_told_who_works_there(
    s3: ObjectStore, small_recipe: Path
) -> None:
    command = ("run", small_recipe, "--out", f"s3://{BUCKET}/run", "--workers", "1", "--no-train")
    first = start(*command)
    deadline = time.monotonic() + 60
    while not any(".owner-" in key for key in s3.objects("run/")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    code, said = ended(start(*command))
    assert code == 2
    assert f"another process is working in this folder (process {first.pid} on " in said
    assert len(said.splitlines()) == 3
    s3.fault = lambda number, request: Fault(status=503)
    code, said = ended(first)
    assert code == 1
    assert "Traceback" not in said
    assert said.splitlines()[-3].startswith("error: ")
    assert f"  where: s3://{BUCKET}/run" in said.splitlines()[-2]
    assert "run the same command again once it can be reached" in said


def test_a_full_disk_for_scratch_is_named_and_the_run_goes_on_with_another(
    s3: ObjectStore, small_recipe: Path, mount: Mount, tmp_path: Path
) -> None:
    full = mount("-t", "tmpfs", "-o", "size=60k", "tmpfs")
    command = ("run", small_recipe, "--out", f"s3://{BUCKET}/run", "--workers", "1", "--no-train")
    code, said = ended(start(*command, temporary=full))
    # Before it there may be notes on costs that a slow server did not take.
    what, where, remedy = said.splitlines()[-3:]
    assert "Traceback" not in said
    assert code == 1
    assert what == "error: No space left on device"
    assert where.startswith(f"  where: {full}/headrace-")
    assert "(in pass " in where
    assert remedy.endswith("once there is room")
    assert not [path for path in full.rglob("*") if path.is_dir() and path.name.startswith("w-")]
    assert ended(start(*command, temporary=tmp_path)) == (0, "")


class Counting(LocalRunner):
    """Notes the requests that each pass takes for its units."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(1)
        self._store, self.requests = store, dict[str, list[Request]]()

    def run(self, work: BeamPass, *arguments: object) -> None:  # type: ignore[override]
        before = len(self._store.requests)
        super().run(work, *arguments)  # type: ignore[arg-type]
        # Progress is looked at now and then, by the clock and not by the split.
        taken = (one for one in self._store.requests[before:] if "list-type=2" not in one.path)
        self.requests[work.name] = list(taken)


def test_a_split_takes_few_requests_and_makes_no_folders(s3: ObjectStore, tmp_path: Path) -> None:
    corpus = make_corpus(tmp_path)
    taken: dict[int, dict[str, list[Request]]] = {}
    for files in (2, 5):
        for number in range(files):
            # Sizes of which no two fit into a split.
            text = (tmp_path / f"web-{number % 3}.jsonl").read_bytes()
            s3.put(f"in-{files}/web-{number}.jsonl", text.replace(b"http://", f"http://{number}.".encode()))
        sources = [{"glob": f"s3://{BUCKET}/in-{files}/*.jsonl", "domain": "web"}]
        table = corpus.recipe(sources=sources, split_bytes=corpus.largest_bytes + 10_000)
        root = f"s3://{BUCKET}/of-{files}"
        workspace = Workspace.of(root, parse_recipe(table, "test"), str(tmp_path))
        runner = Counting(s3)
        curate(workspace, check(workspace), runner, Silent())
        taken[files] = runner.requests
    made = [request for request in s3.requests if request.method == "PUT" and request.path.endswith("/")]
    # What Arrow puts in the place of a folder when it has deleted something in it.
    assert {request.path.removeprefix(f"/{BUCKET}/").split("/")[0] for request in made} <= {"of-2", "of-5"}
    assert {len(request.path.split("/")) for request in made} <= {4, 5, 6}
    of_split = {name: (len(taken[5][name]) - len(taken[2][name])) / 3 for name in taken[5]}
    assert {name for name, count in of_split.items() if count > MOST_REQUESTS} == set(NOT_YET), of_split
    assert of_split["judge"] > 0
