"""Checkpoints: rows of tensors by name, a file for each rank, committed by a marker written last.

Saving copies the state and returns: a thread writes it, on a process group of its own, while training goes on. Each
rank writes and hashes its own file. A folder without its marker is never read; of one with a marker, what is read is
compared with its digest, tensor by tensor. Everything is JSON or raw numbers, so nothing is unpickled.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from shards.errors import IncompleteError, UserError
from shards.files import hash_file
from shards.store import Store
from trainer.collectives import on_each
from trainer.parts import Part
from trainer.progress import Progress
from trainer.tensor_file import Chunk, overlapping, read_rows, write_tensors

FORMAT: Final = 5
_MARKER: Final = "COMMITTED.json"
_PROGRESS: Final = "progress.json"
_NAME: Final = re.compile(r"step-(\d{8,})")
_INDEX: Final = re.compile(r"rank-(\d{5,})-of-(\d{5,})\.json")

_REMEDY: Final = "Remove this checkpoint to resume from an older one, or start again: headrace train DIR --fresh"


class DamagedError(IncompleteError):
    """A committed checkpoint whose tensors are not what was written."""


@dataclass(frozen=True)
class Found:
    """The newest complete checkpoint, if there is one, and notes on the ones that were skipped."""

    name: str | None
    notes: tuple[str, ...]


class Checkpoints:
    """The checkpoints of a training, in a local or shared folder. All ranks call the same methods together.

    Args:
        folder: where they are.
        keep: how many of the last ones are kept.
        keep_every_steps: steps of which one more is kept for good; None for none.
        keep_back_steps: how many steps older than the newest there must be one, as soon as there is one that old.
        asynchronous: copy the state and write it in a thread; otherwise write it at once, without a copy.
    """

    def __init__(
        self,
        folder: Path,
        keep: int,
        *,
        keep_every_steps: int | None = None,
        keep_back_steps: int | None = None,
        asynchronous: bool = True,
    ) -> None:
        self._folder, self._keep, self._every, self._back = folder, keep, keep_every_steps, keep_back_steps
        self._asynchronous = asynchronous
        # Collectives of the thread must not come between those of training.
        # A process outside a training reads only.
        self._group = dist.new_group(backend="gloo") if dist.is_initialized() else None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def find(self, excluded: Collection[str] = (), step: int | None = None) -> Found:
        """Look for the newest committed checkpoint whose small files match its marker, or for the one of a step.

        Those in ``excluded`` are passed over.
        """
        notes = []
        wanted = None if step is None else f"step-{step:08d}"
        for name in reversed(self._names()):
            if name in excluded or wanted not in (None, name):
                continue
            if not (self._folder / name / _MARKER).is_file():
                notes.append(f"checkpoint {name} was never finished: skipped")
            elif problem := self._problem(name):
                notes.append(f"checkpoint {name} is damaged ({problem}): skipped")
            else:
                return Found(name, tuple(notes))
        return Found(None, tuple(notes))

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        names = [path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(names, key=_step)

    def _problem(self, name: str) -> str | None:
        """Return what is wrong with the files that a marker lists, without reading the large ones."""
        folder = self._folder / name
        try:
            listed = json.loads((folder / _MARKER).read_bytes())["files"]
            for file, entry in listed.items():
                path = folder / file
                if path.parent != folder or not path.is_file():
                    return f"{file} is missing"
                if path.stat().st_size != entry["size"]:
                    return f"{file} is not what was written"
                if "sha256" in entry and hash_file(path)[0] != entry["sha256"]:
                    return f"{file} is not what was written"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"its marker cannot be read: {error}"
        indices = [found for file in listed if (found := _INDEX.fullmatch(file))]
        complete = indices and {int(one[1]) for one in indices} == set(range(int(indices[0][2])))
        return None if _PROGRESS in listed and complete else "its marker does not list all files"

    def progress(self, name: str) -> Progress:
        """Read the progress of a checkpoint that :meth:`find` returned.

        Raises:
            IncompleteError: if it was written in another format.
        """
        path = self._folder / name / _PROGRESS
        try:
            value = json.loads(path.read_bytes())
        except ValueError as error:
            raise IncompleteError(f"{_PROGRESS} is not JSON: {error}", place=str(path), remedy=_REMEDY) from None
        said = value if isinstance(value, dict) else {}
        version, writer = said.pop("format", "unknown"), said.get("code_version", "unknown")
        if version != FORMAT:
            raise IncompleteError(
                f"checkpoint {name} has format {version}, and this version of headrace reads format {FORMAT}",
                place=str(path),
                remedy=f"{_REMEDY}, or resume with the version of headrace that wrote it ({writer})",
            )
        if said.keys() != {one.name for one in fields(Progress)}:
            raise IncompleteError(
                f"{_PROGRESS} of checkpoint {name} does not have the keys of format {FORMAT}",
                place=str(path),
                remedy=_REMEDY,
            )
        return Progress(**said)

    def save(self, progress: Progress, parts: Mapping[str, Part]) -> None:
        """Begin to write a checkpoint, after the one before is written; the oldest beyond those to keep are removed.

        Raises:
            UserError: if the one before could not be written.
        """
        self.wait()
        shares = {name: part.share() for name, part in parts.items()}
        if not self._asynchronous:
            self._write(progress, shares)
            return
        copies = {name: _copied(share) for name, share in shares.items()}
        if torch.cuda.is_available():
            torch.cuda.synchronize()  # the copies are in pinned memory, and must be there
        self._thread = threading.Thread(
            target=self._guarded, args=(lambda: self._write(progress, copies),), name="headrace-checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is committed.

        Raises:
            UserError: on every rank, if one of them could not write its part.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # raised again by wait(), in the thread that can end the training
            self._failure = error

    def _write(self, progress: Progress, parts: Mapping[str, Part]) -> None:
        folder, rank, ranks = self._folder / progress.name, dist.get_rank(), dist.get_world_size()

        def together(work: Callable[[], dict[str, Any]], *, first: bool) -> list[dict[str, Any]]:
            waits = first and rank > 0
            return on_each(lambda: {} if waits else _attempted(work, folder), self._group)

        together(lambda: _emptied(folder), first=True)
        stem = f"rank-{rank:05d}-of-{ranks:05d}"
        listed = together(lambda: _written(folder, stem, parts), first=False)
        together(lambda: self._committed(folder, progress, listed), first=True)

    def _committed(self, folder: Path, progress: Progress, listed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        store = Store(folder)
        store.write_json(_PROGRESS, {"format": FORMAT, **asdict(progress)})
        files = {name: entry for one in listed for name, entry in one.items()}
        files[_PROGRESS] = _entry(folder / _PROGRESS)
        store.write_json(_MARKER, {"files": files})
        store.clear_scratch()
        self._prune()
        return {}

    def load(self, name: str, parts: Mapping[str, Part]) -> None:
        """Fill ``parts`` from a checkpoint that :meth:`find` returned, written by any number of ranks.

        Raises:
            DamagedError: on every rank, if a tensor that one of them reads is not what was written. Some parts are
                filled by then.
        """
        problems = on_each(lambda: self._filled(name, parts))
        if found := [problem for problem in problems if problem is not None]:
            raise DamagedError(
                f"checkpoint {name} is damaged ({found[0]})", place=str(self._folder / name), remedy=_REMEDY
            )

    def _filled(self, name: str, parts: Mapping[str, Part]) -> str | None:
        try:
            chunks = self._chunks(name)
            for tensor, part in parts.items():
                for path, chunk, rows in overlapping(chunks, tensor, part):
                    read = read_rows(path, chunk)[rows.start - chunk.first : rows.stop - chunk.first]
                    part.tensor[rows.start - part.first : rows.stop - part.first].copy_(read)
        except (UserError, OSError, ValueError) as error:
            return error.what if isinstance(error, UserError) else str(error)
        return None

    def _chunks(self, name: str) -> dict[Path, dict[str, Chunk]]:
        """Read the indices of all ranks that wrote a checkpoint; only files that the marker lists count."""
        folder = self._folder / name
        listed = json.loads((folder / _MARKER).read_bytes())["files"]
        found = {}
        for file in sorted(listed):
            if _INDEX.fullmatch(file):
                tensors = json.loads((folder / file).read_bytes())
                path = folder / file.replace(".json", ".safetensors")
                found[path] = {tensor: Chunk.parse(value) for tensor, value in tensors.items()}
        return found

    def clear(self) -> None:
        """Remove all checkpoints."""
        for name in self._names():
            _remove(self._folder / name)

    def _prune(self) -> None:
        committed = [name for name in self._names() if (self._folder / name / _MARKER).is_file()]
        kept = set(committed[-self._keep :])
        if self._back is not None:
            # The newest that is old enough to go back to, and those that will be it later.
            back = self._until(_step(committed[-1]) - self._back)
            kept |= {name for name in committed if back is None or _step(name) >= _step(back)}
        for name in committed:
            if name not in kept and (self._every is None or _step(name) % self._every):
                _remove(self._folder / name)

    def _until(self, step: int) -> str | None:
        """Return the newest committed checkpoint that is not after a step."""
        names = [name for name in self._names() if _step(name) <= step]
        return next((name for name in reversed(names) if (self._folder / name / _MARKER).is_file()), None)

    def back_from(self, step: int, steps: int) -> str | None:
        """Return the newest checkpoint at least ``steps`` before ``step``; if there is none, the newest before it."""
        return self._until(step - steps) or self._until(step)

    def forget_after(self, step: int) -> None:
        """Remove the checkpoints of later steps; one rank calls it."""
        for name in self._names():
            if _step(name) > step:
                _remove(self._folder / name)


def _copied(part: Part) -> Part:
    copy = torch.empty(part.tensor.shape, dtype=part.tensor.dtype, pin_memory=part.tensor.is_cuda)
    copy.copy_(part.tensor, non_blocking=True)
    return Part(copy, part.shape, part.first)


def _attempted(work: Callable[[], dict[str, Any]], folder: Path) -> dict[str, Any]:
    try:
        return work()
    except OSError as error:
        what = f"a checkpoint could not be written: {error.strerror or error}"
        raise UserError(what, place=str(folder), remedy="Free some space or allow writing, and resume") from error


def _emptied(folder: Path) -> dict[str, Any]:
    _remove(folder)
    folder.mkdir(parents=True)
    return {}


def _written(folder: Path, stem: str, parts: Mapping[str, Part]) -> dict[str, Any]:
    """Write a rank's file and its index, and return their entries in the marker."""
    data, index = folder / f"{stem}.safetensors", folder / f"{stem}.json"
    Store(folder).write_json(index.name, write_tensors(data, parts))
    return {index.name: _entry(index), data.name: {"size": data.stat().st_size}}


def _entry(path: Path) -> dict[str, Any]:
    return dict(zip(("sha256", "size"), hash_file(path), strict=True))


def _step(name: str) -> int:
    return int(name.removeprefix("step-"))


def _remove(folder: Path) -> None:
    """Remove a checkpoint, its marker first: a kill midway must not leave a marked folder with files missing."""
    (folder / _MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=not folder.exists())
