"""Numbers on their way from the device to the host: a step sends them, and the loop reads them a step later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")


class Later(Generic[T]):
    """A value that the device may still be computing. :meth:`get` waits for it; nothing else does."""

    def __init__(self, resolve: Callable[[], T]) -> None:
        self._resolve = resolve

    def get(self) -> T:
        """Return the value, the same at every call."""
        return self._resolve()


class Transfer:
    """A small tensor copied to the host without waiting for the device."""

    def __init__(self) -> None:
        self._host: Tensor | None = None
        self._event: torch.cuda.Event | None = None

    def send(self, tensor: Tensor) -> None:
        """Start the copy, after everything that is queued on the device."""
        if tensor.is_cuda:
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()
        else:
            self._host = tensor

    def read(self) -> list[float]:
        """Return the numbers; waits until they are there.

        Raises:
            RuntimeError: if nothing was sent: the step whose result is asked for has not been taken.
        """
        if self._host is None:
            raise RuntimeError("the numbers of a step are there only after its update")
        if self._event is not None:
            self._event.synchronize()
        values: list[float] = self._host.tolist()
        return values
