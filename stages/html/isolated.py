"""A function from text to text in a process of its own, with limits of time and memory: for code that may explode.

The limits are a backstop. Whoever calls it refuses what could reach them by a deterministic measure first, so that no
verdict depends on the speed of a machine.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import select
import struct
import subprocess
import sys
import threading
import time
from typing import Final

_LENGTH: Final = struct.Struct("<q")
_READY, _DONE, _RAISED = b"r", b"d", b"e"
_START_SECONDS: Final = 120.0
_CHUNK: Final = 1 << 20


class IsolatedError(RuntimeError):
    """The function raised an error, ended its process, or took more than it may."""


class Isolated:
    """Calls a function in a child process, which is started by the first call and again after it was ended.

    Safe to call from threads, one at a time. A process that was forked starts a child of its own.
    """

    def __init__(self, target: str, seconds: float, memory_bytes: int) -> None:
        """Name the function and its limits.

        Args:
            target: ``module:function``; it takes a string and returns one.
            seconds: how long one call may take; the child is killed then.
            memory_bytes: the address space that the child may take.
        """
        self.target, self.seconds, self.memory_bytes = target, seconds, memory_bytes
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __call__(self, text: str) -> str:
        """Return what the function returns.

        Raises:
            IsolatedError: if it raises, ends its process, or takes more than it may.
        """
        with self._lock:
            if self._child is None or self._pid != os.getpid():
                self._start()
            try:
                status, answer = self._ask(text.encode("utf-8", "replace"))
            except (OSError, EOFError) as error:
                self.close()
                raise IsolatedError(str(error) or "the process ended") from None
            if status == _RAISED:
                raise IsolatedError(answer.decode())
            return answer.decode()

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None and self._pid == os.getpid():
            child.kill()
            child.communicate()

    def _start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        code = "from stages.html.isolated import serve; serve()"
        self._child = subprocess.Popen(
            [sys.executable, "-c", code, self.target, str(self.memory_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        self._pid = os.getpid()
        try:
            status, answer = self._answer(time.monotonic() + _START_SECONDS)
        except (OSError, EOFError):
            self.close()
            raise IsolatedError(f"no process for {self.target} could be started") from None
        if status != _READY:
            self.close()
            raise IsolatedError(f"{self.target} cannot be loaded: {answer.decode()}")

    def _ask(self, data: bytes) -> tuple[bytes, bytes]:
        assert self._child is not None
        assert self._child.stdin is not None
        deadline = time.monotonic() + self.seconds
        os.set_blocking(self._child.stdin.fileno(), False)
        left = memoryview(_LENGTH.pack(len(data)) + data)
        while left:
            wait = max(deadline - time.monotonic(), 0)
            if not select.select([], [self._child.stdin], [], wait)[1]:
                raise TimeoutError(f"took longer than {self.seconds:g} s")
            left = left[os.write(self._child.stdin.fileno(), left[:_CHUNK]) :]
        return self._answer(deadline)

    def _answer(self, deadline: float) -> tuple[bytes, bytes]:
        head = self._read(1 + _LENGTH.size, deadline)
        return head[:1], self._read(_LENGTH.unpack(head[1:])[0], deadline)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        parts = bytearray()
        while len(parts) < size:
            if not select.select([self._child.stdout], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError(f"took longer than {self.seconds:g} s")
            part = os.read(self._child.stdout.fileno(), min(size - len(parts), _CHUNK))
            if not part:
                raise EOFError("the process ended, perhaps for want of memory")
            parts += part
        return bytes(parts)


def serve() -> None:
    """Be the child: answer calls on standard input until it ends."""
    target, memory = sys.argv[1], int(sys.argv[2])
    # What the function prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    calls = sys.stdin.buffer
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    def answer(status: bytes, data: bytes) -> None:
        answers.write(status + _LENGTH.pack(len(data)) + data)
        answers.flush()

    try:
        module, _, name = target.partition(":")
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        answer(_RAISED, _said(error))
        return
    answer(_READY, b"")
    while len(head := calls.read(_LENGTH.size)) == _LENGTH.size:
        text = calls.read(_LENGTH.unpack(head)[0]).decode()
        try:
            answer(_DONE, function(text).encode("utf-8", "replace"))
        except Exception as error:
            answer(_RAISED, _said(error))


def _said(error: Exception) -> bytes:
    return f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:1000]
