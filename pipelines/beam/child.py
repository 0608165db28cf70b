"""A process that makes calls for this one, so that a call which kills its process kills only that.

It is started afresh and never forked, because a runner has threads. Both talk in frames over two pipes: a call is a
pickled function with its argument, and a batch; an answer is any number of batches. Batches are Arrow IPC in both
directions, and what the child says is never unpickled: it has read documents.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, cast

import pyarrow as pa

from shards.errors import IncompleteError, UserError
from stages.failing import STAGE_ERROR, Failure

Call = Callable[[Any, pa.RecordBatch | None], Iterator[pa.RecordBatch]]
"""What a child can do: a function of a module, of an argument that can be pickled, and a batch."""

_CALL, _BATCH, _ERROR, _END = b"C", b"B", b"E", b"Z"
_FRAME: Final = struct.Struct("<cQ")
_EXIT_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.5
_SAID_BYTES: Final = 2_000


class ChildDiedError(RuntimeError):
    """The child's process ended in a call: by a signal, or by an exit of its own."""


class ChildStartError(RuntimeError):
    """The child cannot be started, or cannot be of use."""


class CallError(RuntimeError):
    """The call raised an error in the child that is neither the user's nor the machine's; the child lives.

    Attributes:
        failure: what it is where it belongs to a document.
    """

    def __init__(self, said: str) -> None:
        super().__init__(f"in a child process: {said}")
        self.failure = Failure(STAGE_ERROR, said)


class Child:
    """A child process, started by the first call, and again by the first one after its death. One call at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.RLock()

    def call(self, function: Call, argument: Any, batch: pa.RecordBatch | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of ``function(argument, batch)``. Closing the generator early ends the child.

        Raises:
            ChildDiedError: if the child died.
            UserError, OSError: as they are raised in the child.
            CallError: for any other error there.
            ChildStartError: if there is no starting it.
        """
        with self._lock:
            process = self._process or self._started()
            is_done = False
            try:
                yield from _answers(process, pickle.dumps((function, argument)), batch)
                is_done = True
            except (EOFError, BrokenPipeError) as error:
                raise ChildDiedError(self._ended()) from error
            except _ChildSaidError as error:
                is_done = True
                raise error.said from None
            finally:
                if not is_done:
                    self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            if self._process is not None:
                self._process.kill()
                self._ended()

    def _started(self) -> subprocess.Popen[bytes]:
        code = f"import sys; sys.path[:] = {sys.path!r}; from {__name__} import serve; serve()"
        with tempfile.TemporaryFile() as said:
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
            )
            self._process = process
            try:
                _received(cast(IO[bytes], process.stdout))
            except EOFError:
                ended = self._ended()
                said.seek(-min(said.tell(), _SAID_BYTES), os.SEEK_END)
                why = said.read().decode("utf-8", "replace").strip()
                raise ChildStartError(f"a child process does not start: {ended}. {why}") from None
        return process

    def _ended(self) -> str:
        """Wait for the end of the process, and return how it ended, as ``SIGSEGV`` or ``exit code 3``."""
        process = self._process
        if process is None:
            raise AssertionError("a child that was not started has not ended")
        self._process = None
        try:
            code = process.wait(_EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        for pipe in (process.stdin, process.stdout):
            # What was not sent yet has nobody to go to.
            with contextlib.suppress(OSError):
                cast(IO[bytes], pipe).close()
        if code >= 0:
            return f"exit code {code}"
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
        return f"signal {-code}"


def _answers(process: subprocess.Popen[bytes], call: bytes, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    requests, answers = cast(IO[bytes], process.stdin), cast(IO[bytes], process.stdout)
    _send(requests, _CALL, call)
    _send(requests, _END, b"") if batch is None else _send(requests, _BATCH, _coded(batch))
    while (frame := _received(answers))[0] == _BATCH:
        yield _decoded(frame[1])
    if frame[0] == _ERROR:
        raise _ChildSaidError(_error(json.loads(frame[1])))


class _ChildSaidError(Exception):
    """Carries an error out of the frames: the child lives, and takes the next call."""

    def __init__(self, said: Exception) -> None:
        super().__init__(str(said))
        self.said = said


def _send(pipe: IO[bytes], kind: bytes, data: bytes | pa.Buffer) -> None:
    pipe.write(_FRAME.pack(kind, len(data)))
    pipe.write(data)
    pipe.flush()


def _received(pipe: IO[bytes]) -> tuple[bytes, bytes]:
    """Return (kind, data) of the next frame; EOFError where there is no whole one."""
    head = pipe.read(_FRAME.size)
    if len(head) < _FRAME.size:
        raise EOFError
    kind, size = _FRAME.unpack(head)
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return kind, data


def _coded(batch: pa.RecordBatch) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def _decoded(data: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


def _described(error: BaseException) -> dict[str, Any]:
    if isinstance(error, UserError):
        kind = "incomplete" if isinstance(error, IncompleteError) else "user"
        return {"kind": kind, "what": error.what, "place": error.place, "remedy": error.remedy}
    if isinstance(error, OSError):
        return {
            "kind": "os",
            "errno": error.errno,
            "what": error.strerror or str(error),
            "file": error.filename and str(error.filename),
        }
    return {"kind": "other", "what": Failure.of(error).detail}


def _error(said: dict[str, Any]) -> Exception:
    if said["kind"] in ("user", "incomplete"):
        kind = IncompleteError if said["kind"] == "incomplete" else UserError
        return kind(said["what"], place=said["place"], remedy=said["remedy"])
    if said["kind"] == "os":
        if said["errno"] is None:
            return OSError(said["what"])
        return OSError(said["errno"], said["what"], *([said["file"]] if said["file"] else []))
    return CallError(said["what"])


def serve() -> None:
    """Be the child: answer calls from standard input on standard output, until there are no more."""
    requests, answers = _own_pipes()
    _be_the_one_to_die()
    _reply(answers, _END, b"")
    # Nobody reads what a dying process says, and a thousand of them would say it.
    _point_at_nothing(2)
    with contextlib.suppress(EOFError):
        while True:
            _, call = _received(requests)
            kind, data = _received(requests)
            _answer(answers, call, _decoded(data) if kind == _BATCH else None)


def _answer(answers: IO[bytes], call: bytes, batch: pa.RecordBatch | None) -> None:
    try:
        function, argument = pickle.loads(call)
        for found in function(argument, batch):
            _reply(answers, _BATCH, _coded(found))
    except SystemExit:
        raise
    except BaseException as error:
        _reply(answers, _ERROR, json.dumps(_described(error)).encode())
    else:
        _reply(answers, _END, b"")


def _reply(answers: IO[bytes], kind: bytes, data: bytes | pa.Buffer) -> None:
    try:
        _send(answers, kind, data)
    except BrokenPipeError:
        # Nobody is there any more. As an error it would be taken for one of the call.
        os._exit(1)


def _own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return both pipes under other descriptors: a library that prints must not write between frames."""
    pipes = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    _point_at_nothing(0)
    _point_at_nothing(1)
    return pipes


def _point_at_nothing(descriptor: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, descriptor)
    os.close(nothing)


def _be_the_one_to_die() -> None:
    """Prepare for being killed, and for nothing else: not by Ctrl-C, which is the parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    # Where memory is short, the kernel is to choose this process and not its parent, as far as it lets itself be told.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    pa.set_cpu_count(1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True, name="headrace-parent").start()


def _end_with(parent: int) -> None:
    """End this process when its parent has, in the middle of a call too."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
