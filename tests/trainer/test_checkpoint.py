from __future__ import annotations

import importlib.metadata
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import IncompleteError, UserError
from shards.files import hash_file
from shards.training import ModelSettings, TrainSettings
from tests.trainer.synthetic_batches import DOMAINS
from trainer import checkpoint as module
from trainer.checkpoint import FORMAT, Checkpoints, DamagedError
from trainer.engine import DataParallelEngine
from trainer.parts import Part
from trainer.progress import Progress

MARKER = "COMMITTED.json"
DATA, INDEX = "rank-00000-of-00001.safetensors", "rank-00000-of-00001.json"


def progress(step: int) -> Progress:
    return Progress(step, step * 100, step, {"domains": {"web": [1, 2]}}, {"model": "m"}, [{"kind": "skip_batch"}])


def parts(value: float) -> dict[str, Part]:
    tensors = {"model.a": torch.full((3, 2), value), "optimizer.first_moment.a": torch.full((3, 2), -value)}
    return {name: Part(tensor, tensor.shape) for name, tensor in tensors.items()}


@pytest.fixture
def saved(tmp_path: Path, mesh: DeviceMesh) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (4, 8, 12):
        checkpoints.save(progress(step), parts(float(step)))
    checkpoints.wait()
    return checkpoints


def _load(checkpoints: Checkpoints) -> tuple[str | None, float]:
    excluded: list[str] = []
    while (name := checkpoints.find(excluded).name) is not None:
        target = parts(0.0)
        try:
            checkpoints.load(name, target)
        except DamagedError:
            excluded.append(name)
            continue
        assert torch.equal(target["model.a"].tensor, -target["optimizer.first_moment.a"].tensor)
        return name, target["model.a"].tensor[0, 0].item()
    return None, 0.0


def test_the_newest_comes_back_and_the_oldest_is_gone(saved: Checkpoints, tmp_path: Path) -> None:
    assert _load(saved) == ("step-00000012", 12.0)
    assert saved.progress("step-00000012") == progress(12)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["step-00000008", "step-00000012"]
    assert saved.find().notes == ()


def test_every_so_many_steps_one_is_kept_for_good(tmp_path: Path, mesh: DeviceMesh) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1, keep_every_steps=6)
    for step in (3, 6, 9, 12, 15):
        checkpoints.save(progress(step), parts(0.0))
    checkpoints.wait()
    assert sorted(os.listdir(tmp_path)) == ["step-00000006", "step-00000012", "step-00000015"]


def test_one_is_kept_that_is_old_enough_to_go_back_to(tmp_path: Path, mesh: DeviceMesh) -> None:
    checkpoints = Checkpoints(tmp_path, keep=1, keep_back_steps=5)
    for step in range(2, 20, 2):
        checkpoints.save(progress(step), parts(0.0))
        checkpoints.wait()
        found = checkpoints.back_from(step, 5)
        # As long as none is old enough, the newest is the best there is.
        assert found == f"step-{(step - 5) // 2 * 2 if step > 6 else step:08d}"
    assert len(os.listdir(tmp_path)) == 4
    checkpoints.forget_after(14)
    assert sorted(os.listdir(tmp_path)) == ["step-00000012", "step-00000014"]
    assert checkpoints.back_from(11, 1) is None


@pytest.mark.parametrize("asynchronous", [True, False])
def test_what_is_saved_is_the_state_at_that_moment(tmp_path: Path, mesh: DeviceMesh, asynchronous: bool) -> None:
    checkpoints, state = Checkpoints(tmp_path, keep=2, asynchronous=asynchronous), parts(1.0)
    checkpoints.save(progress(1), state)
    for part in state.values():
        part.tensor.zero_()
    checkpoints.wait()
    assert _load(checkpoints) == ("step-00000001", 1.0)


def test_training_goes_on_while_a_checkpoint_is_written(
    tmp_path: Path, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write, write = threading.Event(), module.write_tensors

    def when_allowed(*arguments: Any) -> Any:
        assert may_write.wait(60)
        return write(*arguments)

    monkeypatch.setattr(module, "write_tensors", when_allowed)
    checkpoints = Checkpoints(tmp_path, keep=2)
    checkpoints.save(progress(1), parts(1.0))
    assert checkpoints.find().name is None  # and here we are, while it is not written
    may_write.set()
    checkpoints.wait()
    assert checkpoints.find().name == "step-00000001"


@pytest.mark.parametrize("step", ["write", "marker"])
def test_a_disk_that_is_full_is_a_users_error_and_the_one_before_holds(
    saved: Checkpoints, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*arguments: Any) -> Any:
        raise OSError(28, "No space left on device")

    target: Any = module if step == "write" else module.Store
    monkeypatch.setattr(target, "write_tensors" if step == "write" else "write_json", full)
    saved.save(progress(16), parts(16.0))
    with pytest.raises(UserError, match="could not be written: No space left"):
        saved.wait()
    assert _load(saved) == ("step-00000012", 12.0)


def test_without_its_marker_a_checkpoint_is_not_read(saved: Checkpoints, tmp_path: Path) -> None:
    (tmp_path / "checkpoints/step-00000012" / MARKER).unlink()
    assert _load(saved) == ("step-00000008", 8.0)
    assert saved.find().notes == ("checkpoint step-00000012 was never finished: skipped",)


@pytest.mark.parametrize("file", [INDEX, "progress.json", DATA])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_is_found_and_named(saved: Checkpoints, tmp_path: Path, file: str, damage: str) -> None:
    path = tmp_path / "checkpoints/step-00000012" / file
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[-5] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-1])
    else:
        path.unlink()
    assert _load(saved) == ("step-00000008", 8.0)
    if (file, damage) == (DATA, "flip"):  # only what is read is hashed, and it is not read yet
        with pytest.raises(DamagedError, match=f"step-00000012 is damaged .{DATA} is not what was written"):
            saved.load("step-00000012", parts(0.0))
    else:
        (note,) = saved.find().notes
        assert "step-00000012" in note
        assert file in note


@pytest.mark.parametrize("marker", ["", "[]", "{}", '{"files": 3}', '{"files": {}}', '{"files": {"../x": {}}}'])
def test_a_marker_that_makes_no_sense_marks_nothing(saved: Checkpoints, tmp_path: Path, marker: str) -> None:
    (tmp_path / "checkpoints/step-00000012" / MARKER).write_text(marker)
    assert saved.find().name == "step-00000008"


def test_where_there_is_none_there_is_none(tmp_path: Path, mesh: DeviceMesh) -> None:
    checkpoints = Checkpoints(tmp_path / "nowhere", keep=1)
    assert checkpoints.find().name is None
    checkpoints.clear()


def test_saving_again_replaces_what_a_kill_left(saved: Checkpoints, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints/step-00000012"
    (folder / MARKER).unlink()
    (folder / "rank-00007-of-00008.safetensors").write_bytes(b"left by more ranks")
    saved.save(progress(12), parts(1.5))
    saved.wait()
    assert _load(saved) == ("step-00000012", 1.5)
    assert sorted(os.listdir(folder)) == sorted([MARKER, "progress.json", INDEX, DATA])


def rewritten(folder: Path, change: Callable[[Any], None]) -> None:
    """Change an index as an attacker would: with a marker that agrees."""
    index, marker = json.loads((folder / INDEX).read_bytes()), json.loads((folder / MARKER).read_bytes())
    change(index)
    (folder / INDEX).write_text(json.dumps(index))
    digest, size = hash_file(folder / INDEX)
    marker["files"][INDEX] = {"sha256": digest, "size": size}
    (folder / MARKER).write_text(json.dumps(marker))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda index: index.pop("model.a"), "3 of 3 rows of model.a are in no file"),
        (lambda index: index["model.a"].update(size=1 << 40), "contradict each other"),
        (lambda index: index["model.a"].update(rows=2, size=16), "1 of 3 rows|not what was written"),
        (lambda index: index["model.a"].update(begin=1), "not what was written"),
        (lambda index: index["model.a"].update(shape=[4, 2], first=1), "has the shape"),
        (lambda index: index["model.a"].update(first=-1), "contradict each other"),
        (lambda index: index["model.a"].update(evil=1), "not a chunk"),
        (lambda index: index.update({"model.a": 3}), "not a chunk"),
    ],
)
def test_a_prepared_index_is_refused(saved: Checkpoints, tmp_path: Path, change: Any, said: str) -> None:
    rewritten(tmp_path / "checkpoints/step-00000012", change)
    assert saved.find().name == "step-00000012"
    with pytest.raises(DamagedError, match=said) as caught:
        saved.load("step-00000012", parts(0.0))
    assert "--fresh" in caught.value.remedy


def test_another_format_is_refused(saved: Checkpoints, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints/step-00000012/progress.json"
    path.write_text(path.read_text().replace(f'"format": {FORMAT}', '"format": 99'))
    with pytest.raises(
        IncompleteError, match=f"has format 99, and this version of headrace reads format {FORMAT}"
    ) as caught:
        saved.progress("step-00000012")
    assert f"wrote it ({importlib.metadata.version('headrace')})" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "[]", "{}", f'{{"format": {FORMAT}}}', '{"format": 3, "step": 3}'])
def test_a_progress_that_makes_no_sense_has_a_remedy(saved: Checkpoints, tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoints/step-00000012/progress.json"
    path.write_text(text)
    with pytest.raises(IncompleteError) as caught:
        saved.progress("step-00000012")
    assert caught.value.place == str(path)
    assert "--fresh" in caught.value.remedy


def test_the_version_that_wrote_it_is_told_but_not_compared(saved: Checkpoints, tmp_path: Path) -> None:
    path = tmp_path / "checkpoints/step-00000012/progress.json"
    version = json.loads(path.read_text())["code_version"]
    assert version == importlib.metadata.version("headrace")
    path.write_text(path.read_text().replace(f'"code_version": "{version}"', '"code_version": "0.0.0"'))
    assert saved.progress("step-00000012").step == 12


@pytest.mark.parametrize("optimizer", ["adamw", "muon", "adafactor", "sm3"])
@pytest.mark.parametrize(("written", "read"), [(1, 3), (2, 0)])
def test_a_checkpoint_of_one_stage_loads_under_another(
    tmp_path: Path, mesh: DeviceMesh, written: int, read: int, optimizer: str
) -> None:
    model = ModelSettings(layers=1, width=8, heads=2, ffn_width=12)
    engines = []
    for zero, seed in ((written, 1), (read, 2)):
        table = {"zero": zero, "seed": seed, "precision": "fp32", "optimizer": optimizer}
        engines.append(DataParallelEngine(model, TrainSettings.model_validate(table), 11, DOMAINS, mesh))
    first, second = (engine.state() for engine in engines)
    for number, part in enumerate(first.values()):
        part.tensor.add_(number)
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(progress(1), first)
    checkpoints.wait()
    checkpoints.load("step-00000001", second)
    for name, part in first.items():
        assert torch.equal(second[name].tensor, part.tensor), name
