"""Steps ahead: a thread plans and reads the next steps while the model computes the current one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from trainer.batch import Batch, StepPlan
from trainer.stream import Stream

Read = Callable[[Stream, int], list[Batch]]
"""Reads what this rank computes of a step; called in the thread."""


@dataclass(frozen=True)
class ReadStep:
    """A step that was planned and read.

    Attributes:
        step: its number.
        plan: the rows of all ranks.
        batches: what ``Read`` returned.
        after: state of the stream after it, as ``Stream.state`` returns it.
    """

    step: int
    plan: StepPlan
    batches: list[Batch]
    after: Mapping[str, Any]


class StepsAhead:
    """Serves the steps of a stream in order, reading at most ``depth`` of them before they are asked for.

    What is served does not depend on ``depth``; with 0 there is no thread. While it is open, nobody else may use the
    stream. A context manager; after it is closed, ``take`` opens it again.

    Args:
        stream: the stream, at the first step to serve.
        read: reads a step.
        depth: steps read ahead, at most, the one in work included.
    """

    def __init__(self, stream: Stream, read: Read, depth: int) -> None:
        self._stream, self._read, self._depth = stream, read, depth
        self._next = stream.step
        self._state: Mapping[str, Any] = stream.state()
        self._thread: threading.Thread | None = None
        self._is_behind = False
        self._changed = threading.Condition()
        self._ready: deque[ReadStep | BaseException] = deque()
        self._stopping = False

    def take(self, step: int) -> ReadStep:
        """Return a step, waiting for it if need be. Asking for any other step than the next one takes longer.

        Raises:
            ValueError: if the schedule does not have this step.
            BaseException: what planning or reading it raised, as it was raised.
        """
        if not 0 <= step < self._stream.schedule.steps:
            raise ValueError(f"the schedule has {self._stream.schedule.steps} steps, so no step {step}")
        if step != self._next:
            self._go_to(step)
        if self._depth == 0:
            found = self._work(step)
        else:
            if self._thread is None:
                self._start()
            with self._changed:
                self._changed.wait_for(lambda: self._ready)
                ready = self._ready.popleft()
                self._changed.notify_all()
            if isinstance(ready, BaseException):
                self.close()
                raise ready
            found = ready
        self._next, self._state = step + 1, found.after
        return found

    def state(self, step: int) -> Mapping[str, Any]:
        """Return the stream's state before a step: at once, if that is the one after the step last taken."""
        if step != self._next:
            self._go_to(step)
        return self._state

    def close(self) -> None:
        """End the thread, after the step that it is at; what it has read ahead is dropped."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        thread.join()
        self._ready.clear()
        self._stopping = False
        # Put right when it is next used: after a failure, that could fail again and hide the first message.
        self._is_behind = True

    def __enter__(self) -> StepsAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _go_to(self, step: int) -> None:
        self.close()
        self._stream.seek(step)
        self._next, self._state, self._is_behind = step, self._stream.state(), False

    def _start(self) -> None:
        if self._is_behind:
            self._stream.restore(self._state)
            self._is_behind = False
        self._thread = threading.Thread(target=self._run, args=(self._next,), daemon=True, name="headrace-steps")
        self._thread.start()

    def _run(self, step: int) -> None:
        while step < self._stream.schedule.steps:
            with self._changed:
                self._changed.wait_for(lambda: self._stopping or len(self._ready) < self._depth)
                if self._stopping:
                    return
            result: ReadStep | BaseException
            try:
                result = self._work(step)
            # Whatever it is, the thread that trains raises it: a thread that died in silence would leave that waiting.
            except BaseException as error:
                result = error
            with self._changed:
                self._ready.append(result)
                self._changed.notify_all()
            if isinstance(result, BaseException):
                return
            step += 1

    def _work(self, step: int) -> ReadStep:
        plan = self._stream.plan(step)
        batches = self._read(self._stream, step)
        return ReadStep(step, plan, batches, self._stream.state())
