"""What every optimizer offers, and what it is given: fp32 masters by name, each this rank's rows of a whole tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class State:
    """A tensor that an optimizer keeps between steps; to load it, write into ``tensor``.

    Attributes:
        tensor: fp32, on the masters' device: this rank's rows, or all of it.
        shape: shape of the whole.
        sharded: True if ranks own rows of it as they own rows of the parameter, False if every rank holds all of it.
    """

    tensor: Tensor
    shape: torch.Size
    sharded: bool


@dataclass(frozen=True)
class Masters:
    """The weights that a rank updates.

    Attributes:
        rows: this rank's rows of each parameter, by name, fp32, updated in place.
        shapes: shapes of the whole parameters.
        group: the ranks that own the other rows; None if this rank owns all rows.
    """

    rows: Mapping[str, Tensor]
    shapes: Mapping[str, torch.Size]
    group: dist.ProcessGroup | None = None

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return next(iter(self.rows.values())).device

    def like(self, name: str) -> State:
        """Return zeros in the shape of a parameter, sharded as it is."""
        return State(torch.zeros_like(self.rows[name]), self.shapes[name], sharded=True)


class Optimizer(Protocol):
    """Updates masters in place. All ranks call it together, with gradients of their own rows."""

    def step(self, gradients: Mapping[str, Tensor], rate: float, scale: Tensor, ok: Tensor) -> None:
        """Update the masters, without waiting for the device.

        Args:
            gradients: by name, fp32, summed over all ranks; may be modified.
            rate: learning rate.
            scale: fp32 of shape (): what the gradients are to be multiplied by.
            ok: bool of shape (): where it is False, neither masters nor state change, whatever the gradients hold.
        """

    def state(self) -> dict[str, State]:
        """Return what an exact resume needs beside the number of updates, by ``kind.parameter``."""

    @property
    def updates(self) -> int:
        """Updates made so far, without those that were not ok; waits for the device."""

    def set_updates(self, updates: int) -> None:
        """Set the number of updates that the state has seen."""


class Elementary:
    """What optimizers without a kernel of torch's share: decay by name, the count of updates, gradients made safe."""

    def __init__(self, masters: Masters, weight_decay: float, decays: Callable[[str], bool]) -> None:
        """Take the masters; weight decay applies to the names that ``decays``."""
        self.masters = masters
        self.decay = {name: weight_decay if decays(name) else 0.0 for name in masters.rows}
        self.count = torch.zeros((), device=masters.device)

    @property
    def updates(self) -> int:
        """Updates made so far; waits for the device."""
        return int(self.count.item())

    def set_updates(self, updates: int) -> None:
        """Set the number of updates that the state has seen."""
        self.count.fill_(float(updates))

    def like(self, kind: str) -> dict[str, State]:
        """Return zeros in the shape of every parameter, as state of a kind."""
        return {f"{kind}.{name}": self.masters.like(name) for name in self.masters.rows}


def scaled(gradient: Tensor, scale: Tensor, ok: Tensor) -> Tensor:
    """Return a scaled gradient, and zeros where the step is not ok: whatever it held must not spread."""
    return torch.where(ok, gradient * scale, 0.0)


def settle(ok: Tensor, old: Tensor, new: Tensor) -> None:
    """Write a new value over an old one, unless the step is not ok."""
    old.copy_(torch.where(ok, new, old))
