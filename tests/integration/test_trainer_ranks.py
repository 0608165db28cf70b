"""Training on one and two ranks: the same losses, the same documents, from any checkpoint, through any kill."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from shards.errors import UserError
from shards.lock import LOCK_FILE, locked
from shards.reader import ShardSet
from tests.shards.small_shards import tokens_of
from tests.trainer.processor import OLDER, needs_bf16, on_x86
from tests.trainer.synthetic_run import PHASES, TRAINING, log, losses, write_run, write_settings
from trainer.config import Job
from trainer.loop import Trainer

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
# Micro-batches that do not divide by two ranks, so that one rank has to run a masked one.
SETTINGS = {**TRAINING, "micro_batch_tokens": 96, "checkpoint_every_steps": 5}
STAGES = (0, 1, 2)


@pytest.fixture(scope="module")
def mesh() -> Iterator[DeviceMesh]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    dist.destroy_process_group()


def train_here(folder: Path, mesh: DeviceMesh, steps: int | None = None) -> None:
    Trainer(Job.load(folder), mesh, lambda: 0.0).run(steps)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, mesh: DeviceMesh) -> dict[str, Path]:
    """All trainings that the tests compare; those of two ranks under one torchrun, for starting it takes longest."""
    base = tmp_path_factory.mktemp("runs")
    bare = write_run(base / "bare", training=SETTINGS)
    names = [
        "one",
        "two",
        "two_in_parts",
        "two_then_one",
        "one_bf16",
        "two_bf16",
        "one_emulated",
        *(f"two_emulated_{z}" for z in (*STAGES, 3)),
        *(f"one_then_two_{z}" for z in STAGES),
    ]
    folders = {name: Path(shutil.copytree(bare, base / name)) for name in names}
    for name in ("one_bf16", "two_bf16"):
        write_settings(folders[name], training={**SETTINGS, "precision": "bf16"})
    for name in names:
        if "_emulated" in name:
            zero = int(name[-1]) if name[-1].isdigit() else 3
            write_settings(folders[name], training={**SETTINGS, "precision": "bf16", "bf16": "emulated", "zero": zero})
    train_here(folders["one_emulated"], mesh)
    train_here(folders["one"], mesh)
    train_here(folders["one_bf16"], mesh)
    for zero in STAGES:
        train_here(folders[f"one_then_two_{zero}"], mesh, 3)
        write_settings(folders[f"one_then_two_{zero}"], training={**SETTINGS, "zero": zero})
    here = {"one", "one_bf16", "one_emulated", "two_in_parts", "two_then_one"}
    on_two = [folders[name] for name in names if name not in here]
    torchrun(*map(str, on_two), f"{folders['two_in_parts']}:2,4")
    shutil.copytree(folders["two"], folders["two_then_one"], dirs_exist_ok=True)
    shutil.rmtree(folders["two_then_one"] / "checkpoints/step-00000011")
    shutil.rmtree(folders["two_then_one"] / "checkpoints/step-00000010")
    train_here(folders["two_then_one"], mesh)
    return folders | {"bare": bare}


def torchrun(*arguments: str, ranks: int = 2) -> None:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, "-m", "tests.trainer.ranks", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def served(folder: Path) -> list[Any]:
    return [[(name, d["targets"]) for name, d in line["domains"].items()] for line in log(folder)[1:]]


@pytest.mark.parametrize("name", ["two", "two_then_one", *(f"one_then_two_{z}" for z in STAGES)])
def test_another_number_of_ranks_or_stage_changes_rounding_only(runs: dict[str, Path], name: str) -> None:
    assert losses(runs[name]) == pytest.approx(losses(runs["one"]), abs=1e-5)
    assert served(runs[name]) == served(runs["one"])


def test_resuming_on_as_many_ranks_gives_the_same_bytes(runs: dict[str, Path]) -> None:
    assert (runs["two_in_parts"] / "train-log.jsonl").read_bytes() == (runs["two"] / "train-log.jsonl").read_bytes()


def test_bf16_on_two_ranks_is_near_bf16_on_one(runs: dict[str, Path]) -> None:
    assert losses(runs["two_bf16"]) == pytest.approx(losses(runs["one_bf16"]), abs=1e-4)
    assert losses(runs["two_bf16"]) != pytest.approx(losses(runs["two"]), abs=1e-6)


@pytest.mark.parametrize("zero", [*STAGES, 3])
def test_emulated_bf16_is_the_same_under_every_stage(runs: dict[str, Path], zero: int) -> None:
    assert losses(runs[f"two_emulated_{zero}"]) == pytest.approx(losses(runs["one_emulated"]), abs=1e-4)
    assert losses(runs[f"two_emulated_{zero}"]) != pytest.approx(losses(runs["two"]), abs=1e-6)


@pytest.mark.parametrize(("name", "copies"), [("two", 1), *((f"one_then_two_{z}", 1 if z else 2) for z in STAGES)])
def test_masters_and_moments_are_there_once_unless_replicated(runs: dict[str, Path], name: str, copies: int) -> None:
    job = Job.load(runs[name])
    counted = int((runs[name] / "held-bytes").read_text())
    assert counted == copies * 12 * job.model.parameters(job.vocabulary)


def bf16_of(checkpoint: Path) -> str:
    return str(json.loads((checkpoint / "progress.json").read_bytes())["bf16"])


@on_x86
def test_an_older_processor_trains_in_emulated_bf16_and_a_newer_one_resumes_with_it(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(runs["bare"], tmp_path / "run"))
    write_settings(folder, training={**SETTINGS, "precision": "bf16"})
    process = command(folder, "--ranks", "2", "--stop-after-steps", "6", **OLDER)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "bf16: emulated (this AVX2 CPU has no bf16 instructions); operands rounded to bf16" in out
    assert "training stops after step 6 in about" in out
    assert bf16_of(folder / "checkpoints/step-00000006") == "emulated"
    process = command(folder, "--ranks", "2")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "bf16: emulated (as in the checkpoint)" in out
    assert log(folder)[0] == {"kind": "start", "step": 0, "precision": "bf16", "bf16": "emulated"}
    assert served(folder) == served(runs["one"])
    assert losses(folder) == pytest.approx(losses(runs["one"]), abs=2e-2)
    assert losses(folder) != pytest.approx(losses(runs["one"]), abs=1e-6)
    assert json.loads((folder / "weights/finished.json").read_bytes())["bf16"] == "emulated"


@needs_bf16
def test_native_bf16_is_not_resumed_without_its_instructions(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["one_bf16"], tmp_path / "run"))
    assert bf16_of(folder / "checkpoints/step-00000011") == "native"
    shutil.rmtree(folder / "checkpoints/step-00000011")
    process = command(folder, "--ranks", "2", **OLDER)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2, err
    assert err.startswith("error: the checkpoint was trained with native bf16, and this AVX2 CPU has no bf16 instruct")
    assert len(err.splitlines()) == 1
    process = command(folder, "--ranks", "2")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "bf16: native (as in the checkpoint)" in out


def command(folder: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    code = (
        "import sys, typer\n"
        "from shards.errors import UserError\n"
        "from trainer.command import train\n"
        "app = typer.Typer(add_completion=False)\n"
        "app.command()(train)\n"
        "try:\n    app()\n"
        "except UserError as error:\n    print(f'error: {error}', file=sys.stderr)\n    sys.exit(2)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), *options],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def wait_until(there: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 180
    while not there():
        assert time.monotonic() < deadline, f"{what} does not appear"
        time.sleep(0.05)


def wait_for_a_step(folder: Path) -> None:
    path = folder / "train-log.jsonl"
    wait_until(lambda: path.exists() and '"kind": "train"' in path.read_text(), f"a step in {path}")


def test_a_kill_loses_nothing_and_the_command_ends_what_it_began(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["bare"], tmp_path / "run"))
    write_settings(folder, training={**SETTINGS, "checkpoint_every_steps": 2})
    process = command(folder, "--ranks", "2")
    marker = folder / "checkpoints/step-00000004/COMMITTED.json"
    wait_until(marker.exists, str(marker))
    # Only the launcher is killed, so its ranks have to notice by themselves.
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    process = command(folder, "--ranks", "2")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "resuming from checkpoint" in out
    assert "finished: 11 steps" in out
    assert (folder / "train-log.jsonl").read_bytes() == (runs["two"] / "train-log.jsonl").read_bytes()
    assert (folder / "weights/model.safetensors").stat().st_size > 0
    process = command(folder)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "is finished" in out


def test_a_mistake_is_one_message_and_code_2(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["one"], tmp_path / "run"))
    write_settings(folder, training={**SETTINGS, "seed": 3})
    process = command(folder, "--ranks", "2")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2, err
    assert err.startswith("error: checkpoint step-00000011 belongs to another training: seed changed since")
    assert len(err.splitlines()) == 1


def long_run(folder: Path) -> Path:
    """One that does not end by itself while a test looks at it."""
    phases = [{**phase, "tokens": phase["tokens"] * 1_000} for phase in PHASES]
    return write_run(folder, phases=phases, training={**SETTINGS, "checkpoint_every_steps": 1_000_000})


@pytest.mark.parametrize(("number", "reaches"), [(signal.SIGINT, "all"), (signal.SIGTERM, "launcher")])
def test_a_signal_ends_all_ranks_after_a_checkpoint(tmp_path: Path, number: signal.Signals, reaches: str) -> None:
    folder = long_run(tmp_path / "run")
    process = command(folder, "--ranks", "2")
    wait_for_a_step(folder)
    # Ctrl-C in a terminal reaches every process at once, and the launcher then tells the ranks again.
    (os.killpg if reaches == "all" else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert err == ""
    (saved,) = (folder / "checkpoints").glob("step-*/COMMITTED.json")
    step = int(saved.parent.name.removeprefix("step-"))
    assert f"stopped after step {step}; resume with: headrace train {folder}" in out
    process = command(folder, "--ranks", "2", "--stop-after-steps", "2")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert f"resuming from checkpoint {saved.parent.name}" in out
    assert [line["step"] for line in log(folder)] == list(range(step + 3))


def test_a_damaged_shard_is_found_before_the_first_step(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["bare"], tmp_path / "run"))
    # The second in the manifest's order, so that it is the second rank who finds it.
    path = folder / "shards/books-held_out.tokens.arrow"
    data = bytearray(path.read_bytes())
    tokens = tokens_of(ShardSet.open(folder / "shards"), "books", "held_out", 3).tobytes()
    data[data.index(tokens)] ^= 1
    path.write_bytes(data)
    process = command(folder, "--ranks", "2")
    _, err = process.communicate(timeout=240)
    assert process.returncode == 2, err
    assert err.startswith(f"error: the shard {path.name} does not have the checksum of its content")
    assert len(err.splitlines()) == 1
    assert not (folder / "train-log.jsonl").exists()
    process = command(folder, "--ranks", "2", "--no-verify", "--stop-after-steps", "1")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert "verified" not in out
    assert "stopped after step 1" in out


def test_training_holds_the_folder_against_curation_and_other_trainings(tmp_path: Path) -> None:
    folder = long_run(tmp_path / "run")
    process = command(folder, "--ranks", "2")
    wait_for_a_step(folder)
    with pytest.raises(UserError, match="another process is working"), locked(folder / LOCK_FILE, str(folder)):
        pytest.fail("curation could begin")
    other = command(folder)
    _, err = other.communicate(timeout=60)
    assert other.returncode == 2
    assert err.startswith("error: another process is working in this folder")
    # Ranks whose launcher is killed end by themselves, with a checkpoint, and only then let go.
    os.kill(process.pid, signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert "stopped after step" in out
    assert list((folder / "checkpoints").glob("step-*/COMMITTED.json"))
    with locked(folder / LOCK_FILE, str(folder)):
        pass


def test_a_training_goes_on_with_other_ranks_each_time(runs: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs["bare"], tmp_path / "run"))
    for ranks, steps in ((2, 3), (4, 3), (1, 2), (3, 3)):
        torchrun(f"{folder}:{steps}!", ranks=ranks)
    assert losses(folder) == pytest.approx(losses(runs["one"]), abs=1e-5)
    assert served(folder) == served(runs["one"])


def ranks_of(launcher: int) -> list[int]:
    """Return the processes of the ranks, by their launcher's."""
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the ranks in /proc")
def test_kills_at_random_moments_leave_no_trace(tmp_path: Path) -> None:
    # A checkpoint after every step, so that most kills come in the middle of one.
    settings = {**SETTINGS, "checkpoint_every_steps": 1, "zero": 3}
    phases = [{**phase, "tokens": phase["tokens"] * 4} for phase in PHASES]
    bare = write_run(tmp_path / "bare", phases=phases, training=settings)
    killed, undisturbed = (Path(shutil.copytree(bare, tmp_path / name)) for name in ("killed", "undisturbed"))
    process = command(undisturbed, "--ranks", "2")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    generator, steps, kills = random.Random(0), 0, 0
    for _ in range(6):
        process = command(killed, "--ranks", "2", "--no-verify")
        aim = steps + generator.randint(1, 6)
        path = killed / "train-log.jsonl"
        wait_until(
            lambda aim=aim, path=path, process=process: (  # type: ignore[misc]
                process.poll() is not None or (path.exists() and f'"step": {aim},' in path.read_text())
            ),
            f"step {aim}",
        )
        time.sleep(generator.random() * 0.05)
        if process.poll() is None and (ranks := ranks_of(process.pid)):
            os.kill(generator.choice(ranks), signal.SIGKILL)
            kills += 1
        process.communicate(timeout=120)
        steps = max((line["step"] for line in log(killed)), default=0)
    assert kills >= 4
    process = command(killed, "--ranks", "2")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert (killed / "train-log.jsonl").read_bytes() == (undisturbed / "train-log.jsonl").read_bytes()
    weights = "weights/model.safetensors"
    assert (killed / weights).read_bytes() == (undisturbed / weights).read_bytes()
