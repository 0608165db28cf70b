"""Calls that end their process, in a module that a child process can import."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, ClassVar

import numpy as np
import pyarrow as pa

from shards.errors import UserError
from shards.files import open_input
from shards.schema import DOCUMENT
from stages.base import Measured, per_row, stage, text_of
from stages.checks import Check
from stages.failing import Failure
from stages.scores import Count
from stages.tokenizer import fit_bpe

DEATHS = {
    "!abort": "SIGABRT",
    "!kill": "SIGKILL",
    "!segv": "SIGSEGV",
    "!exit": "exit code 3",
    "!leave": "exit code 0",
}


class PanicError(BaseException):
    """What a panic in Rust becomes in Python: no Exception."""


def meet(text: str) -> None:
    """Do what a text demands."""
    if text == "!abort":
        os.abort()
    if text == "!kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "!segv":
        ctypes.string_at(0)
    if text == "!exit":
        os._exit(3)
    if text == "!leave":
        os._exit(0)
    if text == "!raise":
        raise ValueError("met")
    if text == "!panic":
        raise PanicError("met")


@stage
class Killer:
    """Meets what texts demand, drops short ones, and fails digits; it prints as it goes."""

    name: ClassVar[str] = "killer_v1"
    scores = (Count("length"),)
    checks = (Check("short", "length", min=3),)
    failures: ClassVar[tuple[str, ...]] = ("digit",)
    columns: ClassVar[Mapping[str, pa.DataType]] = {"chars": pa.int32()}

    is_tame: bool = False

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Measure the text alone."""
        print("judging", flush=True)
        print("judging", file=sys.stderr, flush=True)
        if not self.is_tame:
            for text in text_of(batch):
                meet(text)
        chars = per_row(batch, len)
        digits = {row: Failure("digit", text) for row, text in enumerate(text_of(batch)) if text.isdigit()}
        columns = {"chars": pa.array(chars.astype(np.int64)), "language": pa.array(["en"] * len(chars))}
        return Measured({"length": chars}, columns, digits, pa.array(text_of(batch)))


@stage
class Deadly:
    """Dies of any document, in the way that ``way`` says."""

    name: ClassVar[str] = "deadly_v1"

    way: str

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Die."""
        if self.way == "user":
            raise UserError("no model", place="here", remedy="Add one")
        if self.way == "os":
            raise FileNotFoundError(2, "No such file", "model.bin")
        if self.way == "bug":
            raise KeyError("nowhere")
        meet(self.way)
        raise AssertionError(self.way)


def train(texts: Iterable[str], vocab_size: int, end_of_text: str = "<|endoftext|>") -> str:
    """Fit a tokeniser as ``fit_bpe`` does, and meet what texts demand, alone or as their last word."""

    def met() -> Iterator[str]:
        for text in texts:
            meet(text.rpartition(" ")[2])
            yield text

    return fit_bpe(met(), vocab_size, end_of_text)


def train_nothing(texts: Iterable[str], vocab_size: int) -> str:
    """Die of any text."""
    meet("!segv")
    raise AssertionError


def train_little(texts: Iterable[str], vocab_size: int) -> str:
    """Die of three texts together, and of no fewer."""
    if len(list(texts)) > 2:
        meet("!kill")
    return "fitted"


def answer(argument: Any, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """For a child: yield so many batches of the process id, or meet what a text demands."""
    if isinstance(argument, str):
        meet(argument)
    for number in range(argument if isinstance(argument, int) else 1):
        rows = 0 if batch is None else batch.num_rows
        yield pa.record_batch({"pid": [os.getpid()], "number": [number], "rows": [rows]})


def raising(argument: BaseException, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """For a child: raise an error."""
    raise argument
    yield


def sleeping(argument: float, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """For a child: answer once, then sleep so many seconds."""
    yield from answer(None, batch)
    time.sleep(argument)


def open_deadly(path: str) -> BinaryIO:
    """Open a path; ``PATH!raise@N`` meets ``!raise`` at the N-th byte."""
    path, _, demand = path.partition("!")
    way, _, at = demand.partition("@")
    return Deadline(open_input(path), f"!{way}", int(at)) if demand else open_input(path)  # type: ignore[return-value]


class Deadline:
    """A file that meets a demand when it is read beyond a place."""

    def __init__(self, file: BinaryIO, demand: str, at: int) -> None:
        self._file, self._demand, self._at, self._read = file, demand, at, 0

    def read(self, size: int = -1) -> bytes:
        """Read."""
        data = self._file.read(min(size, 1 << 16) if size >= 0 else size)
        self._read += len(data)
        if self._read > self._at:
            meet(self._demand)
        return data

    def close(self) -> None:
        """Close."""
        self._file.close()

    def __enter__(self) -> Deadline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def documents(texts: list[str]) -> pa.RecordBatch:
    """Return a batch of documents with these texts, every third one of code."""
    rows = [
        {"doc_id": row, "text": text, "source_index": 0, "offset": row, "language": "und", "failed": False}
        | {"domain": "web" if row % 3 else "code"}
        for row, text in enumerate(texts)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENT)
