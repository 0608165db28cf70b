"""Checkpoints: tensors by parameter name through torch's distributed checkpoint, committed by a marker written last.

A folder without its marker, or whose files are not those that the marker lists, is never read. The tensor files hold
tensors only and load with ``weights_only``; all else is JSON. The format's own index is a pickle: it is read by an
unpickler that knows the index's few classes and nothing else, so a prepared file raises an error but runs no code.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
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

FORMAT: Final = 1
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


@dataclass(frozen=True)
class Progress:
    """How far training has come, and of what: everything besides tensors that going on exactly needs.

    Attributes:
        step: steps done.
        tokens: row slots served.
        updates: steps that changed the weights; skipped ones do not.
        stream: the stream's state.
        identity: digests of what must be the same when training goes on: model, data, schedule.
        interventions: what the run decided for itself, as the schedule's ``Intervention`` reads it.
    """

    step: int
    tokens: int
    updates: int
    stream: Mapping[str, Any]
    identity: Mapping[str, str]
    interventions: Sequence[Mapping[str, Any]] = ()


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
        value = json.loads((self._folder / name / _PROGRESS).read_bytes())
        if value.pop("format", None) != FORMAT:
            raise IncompleteError(f"checkpoint {name} has another format", place=str(self._folder))
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
            raise IncompleteError(f"the checkpoint's index names {module}.{name}, which no index holds")
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """Reads a checkpoint without handing its index to the general unpickler.

    It reads the index when it is made: the loader would wrap the error, and look for another index.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        with (folder / _INDEX).open("rb") as file:
            index = _IndexUnpickler(file).load()
        if not isinstance(index, Metadata):
            raise IncompleteError("the checkpoint's index is none", place=str(folder))
        for info in cast(dict[Any, Any], index.storage_data).values():
            if Path(info.relative_path).name != info.relative_path:
                raise IncompleteError("the checkpoint's index leads out of its folder", place=str(folder))
        if index.storage_meta is None:
            index.storage_meta = StorageMeta()
        index.storage_meta.load_id = self.load_id
        self._index = index

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Give the index."""
        return self._index
