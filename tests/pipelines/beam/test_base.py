from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam import coders
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam import work_list
from pipelines.beam.base import ALL, BeamPass, Builder, DriverPass, Inputs, Pass, UnitPass
from pipelines.beam.runners import LocalRunner, Pipeline
from pipelines.beam.work_list import Output, UndeclaredInputError, Unit
from pipelines.chain import build_chain
from pipelines.late import Redecision
from pipelines.passes.components import NearComponents
from pipelines.passes.decide import Histograms, Late
from pipelines.passes.drops import Drops
from pipelines.passes.duplicates import Duplicates, NearWitnesses
from pipelines.passes.edits import Edits
from pipelines.passes.exact import Exact, ExactKeys
from pipelines.passes.fit_lm import FitLm
from pipelines.passes.judge import Judge
from pipelines.passes.links import NearBands, NearBuckets
from pipelines.passes.near import Near, NearSets
from pipelines.passes.shuffle import SplitGroups
from pipelines.passes.write import Write
from pipelines.planning.labels import Labelling
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.tables import publish_table
from pipelines.workspace import Job, Workspace
from shards.manifest import PassFolder
from shards.store import FileEntry, Store
from tests.pipelines.support import plan_of

# Builds the graphs of Beam, some of a million units.
pytestmark = pytest.mark.integration

KINDS = ("keys", "texts", "kept", "histogram")
"""What the fake pass ``up`` makes of every unit: two kinds of file, a statistic and a small table."""
WHOLE = Output("whole", "cuts")
UNITS = ("00000-a", "00001-b")


def made(root: Path, changed: str = "") -> Run:
    """A run in which two passes are finished; what they hold under the name ``changed`` is another thing."""
    recipe = parse_recipe({"sources": [{"glob": "*"}]}, "t")
    workspace = Workspace.of(str(root), recipe, str(root))
    workspace.take_over("key")
    run = Run(workspace, "key", {"up": "d1", "whole": "d2"})
    said = {kind: kind + ("!" if kind == changed else "") for kind in (*KINDS, "cuts", "all")}
    for unit in UNITS:
        files = {
            kind: publish_table(run.store, pa.table({"said": [said[kind], unit]}), f"up/{kind}", unit)
            for kind in KINDS[:2]
        }
        tables = {"histogram": pa.table({"bin": [said["histogram"]]})}
        run.job("up", "d1").commit(unit, files, {"kept": said["kept"]}, tables)
    whole = {
        kind: publish_table(run.store, pa.table({"said": [said[kind]]}), "whole", kind) for kind in ("cuts", "all")
    }
    run.job("whole", "d2").commit(ALL, whole, {"quick": True})
    for name, units in (("up", UNITS), ("whole", (ALL,))):
        PassFolder(run.store, name, run.digests[name]).finish(units)
    return run


@dataclass(frozen=True)
class Down(UnitPass):
    """Reads some of what the fakes make."""

    name: ClassVar[str] = "down"

    first: Output
    setting: int
    second: Output | None = None

    def units(self, inputs: Inputs) -> list[str]:
        return list(UNITS)

    def work(self, job: Job, unit: Unit) -> None:
        """Open what is declared, and then something that is not."""
        job.store.open_checked(unit.file(self.first)).close()
        unit.file(Output("up", "texts"))


UP = {kind: Output("up", kind) for kind in KINDS}


def test_inputs_are_the_fields_that_name_outputs() -> None:
    work = Down(UP["keys"], 3, WHOLE)
    assert work.inputs == (UP["keys"], WHOLE)
    assert Down(UP["keys"], 3).inputs == (UP["keys"],)
    assert work.section() == {"setting": 3}
    assert work.output("rows") == ("down", "rows")


def test_the_driver_reads_what_is_declared(tmp_path: Path) -> None:
    inputs = Inputs(made(tmp_path), (*UP.values(), WHOLE))
    assert inputs.units(UP["keys"]) == UNITS
    assert list(inputs.files(UP["keys"])) == list(UNITS)
    assert inputs.rows(UP["keys"]) == 4
    assert inputs.read(WHOLE).to_pylist() == [{"said": "cuts"}]
    assert inputs.file(WHOLE).rows == 1
    assert inputs.statistics(UP["kept"]) == dict.fromkeys(UNITS, "kept")
    assert inputs.table(UP["histogram"]).to_pylist() == [{"unit": unit, "bin": "histogram"} for unit in UNITS]


READ: dict[str, Callable[[Inputs], object]] = {
    "units": lambda inputs: inputs.units(UP["texts"]),
    "files": lambda inputs: inputs.files(UP["texts"]),
    "file": lambda inputs: inputs.file(Output("whole", "all")),
    "read": lambda inputs: inputs.read(Output("whole", "all")),
    "rows": lambda inputs: inputs.rows(UP["texts"]),
    "statistics": lambda inputs: inputs.statistics(UP["kept"]),
    "table": lambda inputs: inputs.table(UP["histogram"]),
}


@pytest.mark.parametrize("name", READ)
def test_the_driver_reads_nothing_else(tmp_path: Path, name: str) -> None:
    run = made(tmp_path)
    # Another kind of a pass that it does read is no more open to it than another pass.
    for declared in ((), (UP["keys"], WHOLE)):
        with pytest.raises(UndeclaredInputError, match="is not declared"):
            READ[name](Inputs(run, declared))
    READ[name](Inputs(run, (*UP.values(), Output("whole", "all"))))


def test_a_unit_comes_with_its_own_files_and_those_of_the_whole_run(tmp_path: Path) -> None:
    run = made(tmp_path)
    work = Down(UP["keys"], 3, WHOLE)
    inputs = Inputs(run, work.inputs)
    units = list(work.roots(inputs, UNITS[1:]))
    own = run.manifest("up").by_unit[UNITS[1]].files["keys"]
    assert units == [Unit(UNITS[1], {UP["keys"]: (own,), WHOLE: (run.manifest("whole").by_unit[ALL].files["cuts"],)})]


def test_a_worker_cannot_open_what_is_not_declared(tmp_path: Path) -> None:
    run = made(tmp_path)
    work = Down(UP["keys"], 3, WHOLE)
    with LocalRunner(1) as runner, pytest.raises(Exception, match="may not open texts of up: it is not declared"):
        runner.run(work, run.job("down", "d3"), Inputs(run, work.inputs), UNITS, lambda: None)


@pytest.mark.parametrize("declared", [*KINDS, "cuts"])
def test_a_digest_follows_the_content_of_declared_inputs_alone(tmp_path: Path, declared: str) -> None:
    output = UP.get(declared, WHOLE)

    def digest(changed: str) -> str:
        run = made(tmp_path / (changed or "unchanged"), changed)
        work = Down(output, 3)
        return work.digest(Inputs(run, work.inputs))

    before = digest("")
    assert {kind for kind in (*KINDS, "cuts", "all") if digest(kind) != before} == {declared}


def test_a_digest_follows_name_version_and_settings(tmp_path: Path) -> None:
    run = made(tmp_path)

    @dataclass(frozen=True)
    class Renamed(Down):
        name: ClassVar[str] = "renamed"

    @dataclass(frozen=True)
    class Raised(Down):
        version: ClassVar[int] = 2

    works = [
        Down(UP["keys"], 3),
        Down(UP["keys"], 4),
        Down(UP["texts"], 3),
        Down(UP["keys"], 3, WHOLE),
        Renamed(UP["keys"], 3),
        Raised(UP["keys"], 3),
    ]
    assert len({work.digest(Inputs(run, work.inputs)) for work in works}) == len(works)
    assert Down(UP["keys"], 3).digest(Inputs(run, (UP["keys"],))) == works[0].digest(Inputs(run, works[0].inputs))


def test_a_digest_leaves_out_the_digests_above(tmp_path: Path) -> None:
    """A change above that changes no byte ends there."""
    run = made(tmp_path)
    work = Down(UP["keys"], 3)
    before = work.digest(Inputs(run, work.inputs))
    again = Run(run.workspace, "another key", {"up": "another digest", "whole": "d2"})
    folder = PassFolder(run.store, "up", "another digest")
    for marker in run.manifest("up").markers():
        folder.commit(marker)
    folder.finish(UNITS)
    assert work.digest(Inputs(again, work.inputs)) == before


def test_a_pass_in_the_driver_has_one_unit(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Whole(DriverPass):
        name: ClassVar[str] = "whole"

        def work(self, job: Job, inputs: Inputs) -> None:
            job.commit(ALL, {})

    assert Whole().units(Inputs(made(tmp_path), ())) == [ALL]
    with pytest.raises(TypeError, match="abstract"):
        cast(Any, Pass)()


@dataclass(frozen=True)
class Many(UnitPass):
    """A pass of very many units, each with the files that a pass over keys gives it."""

    name: ClassVar[str] = "many"
    count: int

    def units(self, inputs: Inputs) -> list[str]:
        return [f"{number:07d}-abcdef01" for number in range(self.count)]

    def roots(self, inputs: Inputs, pending: Sequence[str]) -> Iterator[Unit]:
        for name in pending:
            yield Unit(name, {UP["keys"]: (ENTRY,), UP["texts"]: (ENTRY,)}, [1, 2])

    def work(self, job: Job, unit: Unit) -> None:
        raise AssertionError("no test works on so many")


ENTRY = FileEntry("judge/documents/0000000-abcdef01-0123456789abcdef.arrow", "0" * 64, 1 << 30, 10**6)


@dataclass(frozen=True)
class ManyRanges(Many):
    """The same with a shuffle between."""

    def builder(self, job: Job, inputs: Inputs, pending: Sequence[str]) -> Builder:
        return functools.partial(_add_shuffle, job)


def _add_shuffle(job: Job, units: Any) -> None:
    _ = units | "keys" >> beam.Map(len) | "pair" >> beam.WithKeys(0) | "by range" >> beam.GroupByKey()


def graph(work: BeamPass, job: Job, inputs: Inputs, pending: Sequence[str]) -> tuple[Pipeline, Any]:
    """A pipeline, and its graph as a runner is given it."""
    pipeline = Pipeline.of(work, job, inputs, pending)
    built = beam.Pipeline(runner=FnApiRunner())
    pipeline.build(built)
    return pipeline, built.to_runner_api()


def names(proto: Any) -> list[str]:
    return sorted(transform.unique_name for transform in proto.components.transforms.values())


def check_size(kind: type[Many], count: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    monkeypatch.setattr(Store, "write_bytes", lambda store, path, data: written.append(data))
    work, inputs = kind(count), Inputs(cast(Run, None), ())
    pipeline, proto = graph(work, Job(str(root), "key", work.name, "d" * 64), inputs, work.units(inputs))
    assert len(proto.SerializeToString()) < 1_000_000
    assert len(pipeline.parts) == len(written)
    assert sum(data.count(b"\n") for data in written) == count
    # The elements: the path of a part, and the units in it. Runners refuse those over 10 MB.
    assert max(map(len, written)) < 2_000_000
    coder = coders.registry.get_coder(Unit)
    for line in written[0].splitlines()[:3]:
        assert len(coder.encode(Unit.from_json(line))) < 10_000
    few = graph(kind(2), Job(str(root), "key", work.name, "d" * 64), inputs, kind(2).units(inputs))[1]
    assert names(few) == names(proto)
    assert not [name for name in names(proto) if "abcdef01" in name]


@pytest.mark.parametrize("kind", [Many, ManyRanges])
def test_a_graph_does_not_grow_with_its_units(
    kind: type[Many], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_size(kind, 20_000, tmp_path, monkeypatch)


@pytest.mark.integration
def test_a_graph_of_a_million_units_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_size(ManyRanges, 10**6, tmp_path, monkeypatch)


def real_passes(count: int) -> dict[str, BeamPass]:
    """Every kind of pass that runs on Beam, over a plan of so many splits."""
    table = {"sources": [{"glob": "*"}], "stages": [{"use": "gopher_quality_v2"}, {"use": "gopher_repetition_v2"}]}
    recipe = parse_recipe(table, "t")
    workspace, plan = Workspace.of("memory://nowhere", recipe, "."), plan_of(count, recipe)
    labels = Labelling.of(recipe, plan, "priority")
    splits = SplitGroups.of(plan, 10**6)
    keys, documents, quick = UP["keys"], UP["texts"], Output("whole", "quick")
    passes: list[BeamPass] = [
        Judge(workspace, plan, Output("fit_lm", "model")),
        Histograms(keys, Redecision((), is_tightened=False), labels),
        Late(keys, WHOLE, Redecision((), is_tightened=True), labels),
        ExactKeys(keys, WHOLE, None, None, labels, splits, 10**6),
        Exact(keys, WHOLE, splits, 10**6, with_followers=True),
        NearBands(keys, WHOLE, documents, Output("whole", "all"), splits, 0.8, 112, 10**6),
        NearBuckets(keys, WHOLE, 0.8, 10**6),
        NearComponents(keys, documents, splits, 10**6),
        NearSets(documents, keys, WHOLE, UP["kept"], None, None, labels, splits, 5, 0.8, 112, 10**6),
        Near(keys, WHOLE, splits, 0.8, 112, 16, 10**6),
        NearWitnesses(keys, documents, splits),
        Duplicates(keys, documents, WHOLE, None, None, splits),
        Drops(keys, WHOLE, None, None, splits, labels, ()),
        Edits(workspace, (), None, documents, keys, labels),
        Write(documents, keys, keys, keys, UP["kept"], WHOLE, WHOLE, quick, labels, "<|endoftext|>", 10**6, 0.1, 7),
        FitLm((("en", 3, ("a.txt",)),)),
    ]
    return {work.name: work for work in passes}


@pytest.mark.parametrize("name", real_passes(0))
def test_transforms_of_a_pass_keep_their_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its units are, and however many: runners compare the graphs of a job's versions by these names."""
    found, sizes = {}, {}
    run = made(tmp_path)
    monkeypatch.setattr(work_list, "PART_UNITS", 256)
    monkeypatch.setattr(Store, "write_bytes", lambda store, path, data: None)
    monkeypatch.setattr(Judge, "chain", lambda work, inputs: build_chain(work.workspace, {}))
    for count in (1, 2, 700):
        work = real_passes(count)[name]
        monkeypatch.setattr(type(work), "roots", lambda work, inputs, pending: (Unit(name) for name in pending))
        pending = [f"{number:05d}" for number in range(count)]
        proto = graph(work, run.job(name, "d"), Inputs(run, work.inputs), pending)[1]
        found[count], sizes[count] = names(proto), len(proto.SerializeToString())
    # Two more parts, and not the plan.
    assert sizes[700] - sizes[1] < 1_000
    assert found[1] == found[2] == found[700]
    assert not [name for name in found[1] if "00000" in name or "abcdef01" in name]
