"""States of a stream at regular steps: from one of them any later step is a few seconds of planning away."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from shards.sealed import SEAL, canonical, digest_of

KEEP_EVERY_STEPS: Final = 100
"""A state takes a few hundred bytes, so that a million steps take some megabytes."""


class KeptStates:
    """States by step, in memory and, with a path, in a file of JSON lines that later processes start from.

    A line that is not what was written, such as the last one of a process that was killed, counts for nothing.

    Args:
        identity: what a stream's states depend on; lines of another one are removed.
        path: the file; None for memory alone.
        writes: whether to write to the file: one process alone does.
        every: steps from one state to the next.
    """

    def __init__(
        self,
        identity: Mapping[str, Any],
        path: Path | None = None,
        *,
        writes: bool = True,
        every: int = KEEP_EVERY_STEPS,
    ) -> None:
        self._identity, self._every = dict(identity), every
        self._path, self._writes = path, writes
        self._loaded = False
        self._steps: list[int] = []
        self._states: list[str] = []

    def offer(self, step: int, state: Mapping[str, Any]) -> None:
        """Keep the state before a step, if none is kept yet."""
        self._load()
        at = bisect_right(self._steps, step)
        if at and self._steps[at - 1] == step:
            return
        self._steps.insert(at, step)
        self._states.insert(at, canonical(state))
        if self._path is not None and self._writes:
            with self._path.open("a") as file:
                file.write(_line(state))

    def is_due(self, step: int) -> bool:
        """Return whether the state before a step is to be offered."""
        return step % self._every == 0

    def before(self, step: int) -> dict[str, Any] | None:
        """Return the state of the last step that is kept and not after ``step``; None if there is none."""
        self._load()
        at = bisect_right(self._steps, step)
        found: dict[str, Any] | None = json.loads(self._states[at - 1]) if at else None
        return found

    def _load(self) -> None:
        """Read the file when a state is first asked for: a stream that resumes where it is does not wait for it."""
        if self._loaded:
            return
        self._loaded = True
        data = self._path.read_bytes() if self._path is not None and self._path.exists() else b""
        found: dict[int, str] = {}
        for line in data.splitlines():
            if (state := self._state_in(line)) is not None:
                found[state["step"]] = canonical(state)
        self._steps = sorted(found)
        self._states = [found[step] for step in self._steps]
        if self._path is not None and self._writes:
            # Without what counts for nothing: the next line must begin a line.
            whole = "".join(_line(json.loads(state)) for state in self._states)
            if whole.encode() != data:
                self._path.write_text(whole)

    def _state_in(self, line: bytes) -> dict[str, Any] | None:
        try:
            state = json.loads(line)
        except ValueError:
            return None
        if not isinstance(state, dict) or state.pop(SEAL, None) != digest_of(state):
            return None
        return state if all(state.get(name) == value for name, value in self._identity.items()) else None


def _line(state: Mapping[str, Any]) -> str:
    return canonical({**state, SEAL: digest_of(state)}) + "\n"
