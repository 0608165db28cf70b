"""Checkpoints: tensors by parameter name, in torch's distributed checkpoint, committed by a marker written last.

A folder without its marker, or whose files differ from what the marker lists, is never read. The tensor files hold only
tensors and load with ``weights_only``; everything else is JSON. The index that torch adds is a pickle: it is read by an
unpickler that allows only the few classes of an index, so a malicious file raises an error instead of running code.
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
from shards.files import hash_file
from shards.store import Store
from shards.training import Bf16

FORMAT: Final = 4
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

_REMEDY: Final = "Remove this checkpoint to resume from an older one, or start again: headrace train DIR --fresh"


def code_version() -> str:
    """Return the version of headrace, or "unknown" if it is not installed."""
    try:
        return importlib.metadata.version("headrace")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


@dataclass(frozen=True)
class Progress:
    """How far a training has come, and which one it is: everything except tensors that an exact resume needs.

    Attributes:
        step: steps done.
        tokens: row slots served.
        updates: steps that changed the weights, so without skipped ones.
        stream: state of the stream.
        identity: what must not have changed on resume (``Job.identity``).
        interventions: the run's deviations from the schedule, as ``Intervention`` reads them.
        last_phase_steps: steps of the schedule's last phase, if they had to be counted (``trainer.stream.fit``).
        bf16: how bf16 products were computed, ``native`` or ``emulated``; None in fp32.
        code_version: version of headrace that wrote the checkpoint; for people, never compared.
    """

    step: int
    tokens: int
    updates: int
    stream: Mapping[str, Any]
    identity: Mapping[str, str]
    interventions: Sequence[Mapping[str, Any]] = ()
    last_phase_steps: int | None = None
    bf16: Bf16 | None = None
    code_version: str = field(default_factory=code_version)


@dataclass(frozen=True)
class Found:
    """The newest complete checkpoint, if there is one, and notes on the ones that were skipped."""

    name: str | None
    notes: tuple[str, ...]


class Checkpoints:
    """The checkpoints of a training, in a local or shared folder. All ranks call :meth:`save` and :meth:`load`."""

    def __init__(self, folder: Path, keep: int) -> None:
        self._folder, self._keep = folder, keep

    def find(self, step: int | None = None) -> Found:
        """Look for the newest committed checkpoint whose files match its marker, or for the one of a step."""
        notes = []
        wanted = None if step is None else f"step-{step:08d}"
        for name in reversed([name for name in self._names() if wanted in (None, name)]):
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
        return None if {_PROGRESS, _INDEX} <= listed.keys() else "its marker does not list all files"

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

    def save(self, progress: Progress, tensors: Mapping[str, Tensor]) -> None:
        """Write a checkpoint, commit it, and remove the oldest ones beyond the number to keep."""
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
        """Fill ``tensors`` in place from a checkpoint that :meth:`find` returned, written by any number of ranks."""
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
    """Remove a checkpoint, its marker first: a kill midway must not leave a marked folder with files missing."""
    (folder / _MARKER).unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=not folder.exists())


class _IndexUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name not in _INDEX_CLASSES.get(module, ()):
            raise IncompleteError(
                f"the checkpoint's index names {module}.{name}, which is not a class of an index",
                remedy="Do not resume from it: it was tampered with, or written by another version of torch",
            )
        return super().find_class(module, name)


class _Reader(FileSystemReader):
    """Reads a checkpoint without passing its index to the general unpickler.

    The index is read on construction: the loader would wrap an error, and look for another index.
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
            raise IncompleteError("the checkpoint's index is not an index", place=place, remedy=_REMEDY)
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
