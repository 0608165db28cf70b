from __future__ import annotations

import importlib.metadata
import json
import os
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import IncompleteError
from shards.files import hash_file
from shards.training import ModelSettings, TrainSettings
from trainer.checkpoint import FORMAT, Checkpoints, Progress
from trainer.sharding import distributed, shard

MARKER = "COMMITTED.json"


def progress(step: int) -> Progress:
    return Progress(step, step * 100, step, {"domains": {"web": [1, 2]}}, {"model": "m"}, [{"kind": "skip_batch"}])


def tensors(value: float) -> dict[str, Tensor]:
    return {"model.a": torch.full((3, 2), value), "optimizer.first_moment.a": torch.full((3, 2), -value)}


@pytest.fixture
def saved(tmp_path: Path, mesh: DeviceMesh) -> Checkpoints:
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=2)
    for step in (4, 8, 12):
        checkpoints.save(progress(step), tensors(float(step)))
    return checkpoints


def _load(checkpoints: Checkpoints) -> tuple[str | None, float]:
    name, target = checkpoints.find().name, tensors(0.0)
    if name is not None:
        checkpoints.load(name, target)
    assert torch.equal(target["model.a"], -target["optimizer.first_moment.a"])
    return name, target["model.a"][0, 0].item()


def test_the_newest_comes_back_and_the_oldest_is_gone(saved: Checkpoints, tmp_path: Path) -> None:
    assert _load(saved) == ("step-00000012", 12.0)
    assert saved.progress("step-00000012") == progress(12)
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["step-00000008", "step-00000012"]
    assert saved.find().notes == ()


def test_without_its_marker_a_checkpoint_is_not_read(saved: Checkpoints, tmp_path: Path) -> None:
    (tmp_path / "checkpoints/step-00000012" / MARKER).unlink()
    assert _load(saved) == ("step-00000008", 8.0)
    assert saved.find().notes == ("checkpoint step-00000012 was never finished: skipped",)


@pytest.mark.parametrize("file", ["__0_0.distcp", ".metadata", "progress.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_file_is_found_and_named(saved: Checkpoints, tmp_path: Path, file: str, damage: str) -> None:
    path = tmp_path / "checkpoints/step-00000012" / file
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-1])
    else:
        path.unlink()
    assert _load(saved) == ("step-00000008", 8.0)
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
    (folder / "__7_0.distcp").write_bytes(b"left by more ranks")
    saved.save(progress(12), tensors(1.5))
    assert _load(saved) == ("step-00000012", 1.5)
    assert not (folder / "__7_0.distcp").exists()


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("evil-was-here",)


def test_a_prepared_index_runs_no_code(saved: Checkpoints, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "checkpoints/step-00000012"
    (folder / ".metadata").write_bytes(pickle.dumps(_Evil()))
    marker = json.loads((folder / MARKER).read_text())
    digest, size = hash_file(folder / ".metadata")
    marker["files"][".metadata"] = {"sha256": digest, "size": size}
    (folder / MARKER).write_text(json.dumps(marker))
    name = saved.find().name
    assert name == "step-00000012"
    with pytest.raises(IncompleteError, match="which is not a class of an index") as caught:
        saved.load(name, tensors(0.0))
    assert caught.value.place == str(folder / ".metadata")
    assert "Do not resume from it" in caught.value.remedy
    assert not (tmp_path / "evil-was-here").exists()


@pytest.mark.parametrize("data", [b"", b"\x80\x04", b"garbage", pickle.dumps([1]), pickle.dumps(torch.Size([2]))])
def test_an_index_that_is_none_has_a_remedy(saved: Checkpoints, tmp_path: Path, data: bytes) -> None:
    (tmp_path / "checkpoints/step-00000012/.metadata").write_bytes(data)
    with pytest.raises(IncompleteError, match="index") as caught:
        saved.load("step-00000012", tensors(0.0))
    assert "Remove this checkpoint" in caught.value.remedy


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


@pytest.mark.parametrize(("written", "read"), [(1, 3), (3, 1), (0, 2), (2, 0)])
def test_a_checkpoint_of_one_stage_loads_under_another(
    tmp_path: Path, mesh: DeviceMesh, written: int, read: int
) -> None:
    model = ModelSettings(layers=1, width=8, heads=2, ffn_width=12)
    shardings = [
        shard(model, TrainSettings(zero=zero, seed=seed, precision="fp32"), 11, mesh)  # type: ignore[arg-type]
        for zero, seed in ((written, 1), (read, 2))
    ]
    first, second = ({n: distributed(s, n, m) for n, m in s.masters.items()} for s in shardings)
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(progress(1), first)
    checkpoints.load("step-00000001", second)
    for name, master in shardings[0].masters.items():
        assert torch.equal(shardings[1].masters[name], master)
