"""Branches of a training: made from a checkpoint, with a schedule whose past is the one that was served."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from shards.errors import UserError
from shards.files import hash_file
from shards.reader import ShardSet
from shards.schedule.branch import branch
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from shards.sealed import read_sealed, write_sealed
from shards.store import Store

if TYPE_CHECKING:
    from trainer.config import Job

_FOLDER: Final = "branches"
_FILE: Final = "branch.json"
_SCHEDULE: Final = "schedule.json"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def branch_folder(folder: Path, name: str) -> Path:
    """Return the folder of a branch of a run.

    Raises:
        UserError: if the name cannot be a folder's.
    """
    if not _NAME.fullmatch(name):
        raise UserError(
            f"{name!r} cannot be the name of a branch", remedy="Use letters, digits, dots, hyphens and underscores"
        )
    return folder / _FOLDER / name


def branch_schedule(folder: Path, name: str) -> Schedule:
    """Return the schedule of a branch, compared with what was written when it was made.

    Raises:
        UserError: if there is no such branch.
        IncompleteError: if a file is not what was written.
    """
    return _read(folder, name)[1]


def make_branch(
    folder: Path, name: str, changes: Sequence[str], *, of: str | None = None, step: int | None = None
) -> bool:
    """Make a branch, if there is none of this name yet, and return whether it was made.

    Args:
        folder: a finished run that was trained on for some steps. The caller holds its lock.
        name: the branch's name.
        changes: ``KEY=VALUE`` for each change ahead, see ``shards.schedule.branch``; values are TOML, or plain text.
        of: the branch to branch from; the run's own schedule by default.
        step: the checkpoint to branch from; the newest by default.

    Raises:
        UserError: if there is no checkpoint, a change is of the past or does not fit, or the branch exists and there
            are changes.
    """
    from trainer.checkpoint import Checkpoints
    from trainer.config import Job

    place = branch_folder(folder, name)
    if place.exists():
        if changes or of is not None or step is not None:
            raise UserError(
                f"there is a branch {name!r} already, and a branch does not change once it is made",
                place=str(place),
                remedy="Resume it with its name alone, or give the new branch another name",
            )
        return False
    parent = Job.load(folder, of)
    found = Checkpoints(parent.checkpoints_path, 1).find(step=step)
    if found.name is None:
        which = "no checkpoint" if step is None else f"no checkpoint of step {step}"
        raise UserError(
            f"there is {which} to branch from" + "".join(f"; {note}" for note in found.notes),
            place=str(parent.checkpoints_path),
            remedy="Train for some steps first, or raise training.keep_checkpoints to keep earlier ones",
        )
    settings = _settings(folder, of)
    begins = Checkpoints(parent.checkpoints_path, 1).progress(found.name).step
    tokens = ShardSet.open(folder / "shards").catalog.tokens_per_domain("train")
    made, schedule = branch(parent.schedule, settings, begins, _values(changes), tokens)
    scratch = place.with_name(f".{name}")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    said = {"of": of, "step": begins, "digest": schedule.digest, "settings": made.model_dump(mode="json")}
    store = Store(scratch)
    store.write_bytes(_SCHEDULE, schedule.to_json().encode())
    _copy_checkpoint(parent, found.name, scratch, schedule)
    write_sealed(store, _FILE, said)
    store.clear_scratch()
    # In one move: what a kill leaves before is no branch.
    os.replace(scratch, place)
    return True


def _copy_checkpoint(parent: Job, name: str, to: Path, schedule: Schedule) -> None:
    """Copy a checkpoint, by links to its tensors, as one of the branch; and the logs, which end at its step."""
    for log in (parent.log_path, parent.timings_path):
        if log.exists():
            shutil.copy(log, to / log.name)
    source, copy = parent.checkpoints_path / name, to / "checkpoints" / name
    copy.mkdir(parents=True)
    marker = json.loads((source / "COMMITTED.json").read_bytes())
    for file in marker["files"]:
        if file != "progress.json":
            _link(source / file, copy / file)
    progress = json.loads((source / "progress.json").read_bytes())
    progress["identity"] = replace(parent, schedule=schedule).identity
    store = Store(copy)
    store.write_json("progress.json", progress)
    sha256, size = hash_file(copy / "progress.json")
    store.write_json("COMMITTED.json", {"files": marker["files"] | {"progress.json": {"sha256": sha256, "size": size}}})
    store.clear_scratch()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        # Some file systems have no hard links.
        shutil.copy(source, target)


def _settings(folder: Path, of: str | None) -> ScheduleSettings:
    """Return what the schedule to branch from was resolved from."""
    if of is not None:
        return _read(folder, of)[0]
    table = read_sealed(Store(folder), "recipe.json")["recipe"]["schedule"]
    return ScheduleSettings.model_validate(table)


def _read(folder: Path, name: str) -> tuple[ScheduleSettings, Schedule]:
    place = branch_folder(folder, name)
    if not (place / _FILE).is_file():
        there = sorted(path.parent.name for path in (folder / _FOLDER).glob(f"*/{_FILE}"))
        raise UserError(
            f"there is no branch {name!r}",
            place=str(folder / _FOLDER),
            remedy=f"There is {', '.join(there)}" if there else "Make one with KEY=VALUE after --branch NAME",
        )
    said = read_sealed(Store(place), _FILE)
    path = place / _SCHEDULE
    schedule = Schedule.from_json(path.read_bytes(), str(path))
    if schedule.digest != said["digest"]:
        raise UserError(
            f"{_SCHEDULE} of branch {name!r} is not what was written",
            place=str(path),
            remedy="Remove the branch's folder and make it again",
        )
    return ScheduleSettings.model_validate(said["settings"]), schedule


def _values(changes: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for change in changes:
        key, separator, raw = change.partition("=")
        if not separator or not key.strip():
            raise UserError(f"{change!r} is not KEY=VALUE", remedy="Write, for example, phases.anneal.tokens=1000000")
        try:
            values[key.strip()] = tomllib.loads(f"value = {raw}")["value"]
        except tomllib.TOMLDecodeError:
            values[key.strip()] = raw
    return values
