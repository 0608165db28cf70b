"""Checkpoints: tensors by parameter name through torch's distributed checkpoint, committed by a marker written last.

A folder without its marker, or whose files are not those that the marker lists, is never read. The tensor files hold
tensors only and load with ``weights_only``; all else is JSON. The format's own index is a pickle: it is read by an
unpickler that knows the index's few classes and nothing else, so a prepared file raises an error but runs no code.
"""

from __future__ import annotations

import importlib.metadata
import json
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from shards.errors import IncompleteError
from shards.store import Store, hash_file
from shards.training import Bf16

FORMAT: Final = 3
_MARKER: Final = "COMMITTED.json"
_PROGRESS: Final = "progress.json"
_INDEX: Final = ".metadata"
_NAME: Final = re.compile(r"step-(\d{8,})")

_INDEX_CLASSES: Final = {
    "torch.distributed.checkpoint.metadata": {
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo"},
    "torch.serialization": {"_get_layout"},
    "torch": {"Size", "float32"},
    "pathlib": {"PosixPath", "WindowsPath", "PurePosixPath"},
}

_REMEDY: Final = "Remove this checkpoint, to go on from an older one, or start again: headrace train DIR --fresh"


def code_version() -> str:
    """Return the version of headrace, "unknown" where it is not installed."""
    try:
        return importlib.metadata.version("headrace")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Progress:
    """How far training has come, and of what: everything besides tensors that going on exactly needs.

    Attributes:
        step: steps done.
        tokens: row slots served.
        updates: steps that changed the weights; skipped ones do not.
        stream: the stream's state.
        identity: what must be the same when training goes on (``Job.identity``).
        interventions: what the run decided for itself, as the schedule's ``Intervention`` reads it.
        last_stage_steps: steps of the schedule's last stage, where they had to be counted (``trainer.stream.fit``).
        bf16: how bf16 products were computed, ``native`` or ``emulated``; None in fp32.
        code_version: of headrace that wrote it; for people, never compared.
    """

    step: int
    tokens: int
    updates: int
    stream: Mapping[str, Any]
    identity: Mapping[str, str]
    interventions: Sequence[Mapping[str, Any]] = ()
    last_stage_steps: int | None = None
    bf16: Bf16 | None = None
    code_version: str = field(default_factory=code_version)


@dataclass(frozen=True)
class Found:
    """The newest whole checkpoint, if there is one, and what was passed over to find it."""

    name: str | None
    notes: tuple[str, ...]


class Checkpoints:
    """The checkpoints of one training, in a local (or shared) folder. All ranks call :meth:`save` and :meth:`load`."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def find(self) -> Found:
        """Look for the newest committed checkpoint whose files are those of its marker."""
        notes = []
        for name in reversed(self._names()):
            if not (self._folder / name / _MARKER).is_file():
                notes.append(f"checkpoint {name} was never finished: not read")
            elif problem := self._problem(name):
                notes.append(f"checkpoint {name} is damaged ({problem}): not read")
            else:
                return Found(name, tuple(notes))
        return Found(None, tuple(notes))

    def _names(self) -> list[str]:
        if not self._folder.is_dir():
            return []
        names = [path.name for path in self._folder.iterdir() if _NAME.fullmatch(path.name)]
        return sorted(names, key=lambda name: int(name.removeprefix("step-")))

    def _problem(self, name: str) -> str | None:
        try:
            listed = json.loads((self._folder / name / _MARKER).read_bytes())["files"]
            for file, entry in listed.items():
                path = self._folder / name / file
                if path.parent != self._folder / name or not path.is_file():
                    return f"{file} is missing"
                if hash_file(path) != (entry["sha256"], entry["size"]):
                    return f"{file} is not what was written"
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return f"its marker cannot be read: {error}"
        return None if {_PROGRESS, _INDEX} <= listed.keys() else "its marker lists too few files"

    def progress(self, name: str) -> Progress:
        """Read the progress of a checkpoint that :meth:`find` gave.

        Raises:
            IncompleteError: if it was written in another format.
        """
        path = self._folder / name / _PROGRESS
        try:
            value = json.loads(path.read_bytes())
        except ValueError as error:
            raise IncompleteError(f"{_PROGRESS} is not JSON: {error}", place=str(path), remedy=_REMEDY) from None
        wanted = {"format", *(one.name for one in fields(Progress))}
        if not isinstance(value, dict) or value.get("format") != FORMAT or value.keys() != wanted:
            version = value.get("code_version", "unknown") if isinstance(value, dict) else "unknown"
            raise IncompleteError(
                f"checkpoint {name} has another format than this version's, {FORMAT}",
                place=str(path),
                remedy=f"{_REMEDY}, or go on with the version of headrace that wrote it ({version})",
            )
        del value["format"]
        return Progress(**value)

    def save(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, mark it, and remove older ones beyond the number to keep."""
        name = f"step-{progress.step:08d}"
        folder = self._folder / name
        if dist.get_rank() == 0:
            _remove(folder)
            folder.mkdir(parents=True)
        dist.barrier()
        save(dict(tensors), storage_writer=FileSystemWriter(folder))
        dist.barrier()
        if dist.get_rank() == 0:
            store = Store(folder)
            store.write_json(_PROGRESS, {"format": FORMAT, **asdict(progress)})
            files = {
                path.name: dict(zip(("sha256", "size"), hash_file(path), strict=True))
                for path in sorted(folder.iterdir())
                if path.is_file()
            }
            store.write_json(_MARKER, {"files": files})
            store.clear_scratch()
            self._prune()
        dist.barrier()

    def load(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Fill ``tensors`` in place from a checkpoint that :meth:`find` gave, whatever ranks it was written by."""
        load(dict(tensors), storage_reader=_Reader(self._folder / name))

    def clear(self) -> None:
        """Remove all checkpoints."""
        for name in self._names():
            _remove(self._folder / name)

    def _prune(self) -> None:
        committed = [name for name in self._names() if (self._folder / name / _MARKER).is_file()]
        for name in committed[: -self._keep]:
            _remove(self._folder / name)


def _remove(folder: Path) -> None:
    """Remove a checkpoint, its marker first: a kill half-way must not leave a marked folder without its files."""
    (folder / _MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=not folder.exists())


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _INDEX_CLASSES.get(module, ()):
            raise IncompleteError(
                f"the checkpoint's index names {module}.{name}, which no index holds",
                remedy="Do not go on from it: it was tampered with, or written by another version of torch",
            )
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """Reads a checkpoint without handing its index to the general unpickler.

    It reads the index when it is made: the loader would wrap the error, and look for another index.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        place = str(folder / _INDEX)
        with (folder / _INDEX).open("rb") as file:
            try:
                index = _IndexUnpickler(file).load()
            except IncompleteError as error:
                raise IncompleteError(error.what, place=place, remedy=error.remedy) from None
            except (pickle.UnpicklingError, EOFError, ValueError, AttributeError, ImportError, IndexError) as error:
                raise IncompleteError(
                    f"the checkpoint's index cannot be read: {error}", place=place, remedy=_REMEDY
                ) from None
        if not isinstance(index, Metadata):
            raise IncompleteError("the checkpoint's index is none", place=place, remedy=_REMEDY)
        for info in cast(dict[Any, Any], index.storage_data).values():
            if Path(info.relative_path).name != info.relative_path:
                raise IncompleteError("the checkpoint's index leads out of its folder", place=place, remedy=_REMEDY)
        if index.storage_meta is None:
            index.storage_meta = StorageMeta()
        index.storage_meta.load_id = self.load_id
        self._index = index

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the index."""
        return self._index
