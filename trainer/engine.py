"""What the loop talks to: an engine that computes gradients on a mesh and updates the weights.

The loop knows neither ranks nor stages. An engine says which share of the rows is its own, and hides how they become an
update: another axis of parallelism is another engine, not a branch in the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from shards.training import ModelSettings, TrainSettings
from trainer.attention import choose_backend
from trainer.batch import Batch
from trainer.evaluate import HeldOut
from trainer.later import Later, Transfer
from trainer.mesh import DP, SHARD, data_rank, data_ranks, is_first_replica, named, shard_group
from trainer.micro_batch import Losses, Tally, by_domain, losses_of
from trainer.optimizer import build_optimizer, clipping, squares
from trainer.optimizers.average import Averaged
from trainer.optimizers.base import Masters, State
from trainer.parts import Part, first_row
from trainer.rope import Rope
from trainer.sharding import distributed, shard

# What a step reduces over all ranks in one collective, before the losses and targets by domain.
_SQUARES, _ASKS, _HEADER = 0, 1, 2


@dataclass(frozen=True)
class Update:
    """How a step ended, the same on every rank.

    Attributes:
        norm: L2 norm of the whole gradient before clipping. If it is not finite, the step changed nothing.
        asks: True if a rank asked for a stop in this step.
    """

    norm: float
    asks: bool


class Engine(Protocol):
    """Computes on this rank's part of the mesh. All ranks call the same methods together."""

    data_rank: int
    """Place of this rank among the ``data_ranks`` that take rows, each its own."""
    data_ranks: int

    def accumulate(self, batches: Sequence[Batch], count: int, rope: Rope) -> Later[Losses]:
        """Run micro-batches forward and backward, adding to the gradients of the step.

        Args:
            batches: this rank's micro-batches, equally many on every rank.
            count: targets of the step on all ranks together, by which the sum of losses is divided.
            rope: frequencies of the current phase.

        Returns:
            Losses over all ranks by domain. They are there once the step has been taken.
        """

    def step(self, rate: float, *, asks: bool = False) -> Later[Update]:
        """Update the weights with the gradients, unless their norm is not finite, and drop the gradients.

        ``asks`` says whether this rank wants to stop; every rank learns of it from the result.
        """

    def evaluate(self, held_out: HeldOut, context_tokens: int, rows: int, rope: Rope) -> Losses:
        """Return the losses on held-out documents."""

    def state(self) -> dict[str, Part]:
        """Return this rank's parts of a checkpoint by name; to load one, write into its tensor."""

    @property
    def updates(self) -> int:
        """Steps that changed the weights."""

    def loaded(self, updates: int) -> None:
        """Take up the tensors that were written into ``state()``, which have seen so many updates."""

    shapes: dict[str, torch.Size]
    """Whole shapes of the parameters."""

    def weights(self) -> Iterator[Tensor]:
        """Yield the parameters in the order of ``shapes``, fp32 and whole on every rank, one at a time."""


class DataParallelEngine:
    """Rows divided over all ranks; the model's state replicated along ``dp`` and divided along ``shard`` (ZeRO, HSDP).

    A step waits for nothing: its norm is reduced on the device together with the losses, clips and skips there, and is
    copied to the host while the next step is being queued.
    """

    def __init__(
        self,
        model: ModelSettings,
        training: TrainSettings,
        vocabulary: int,
        domains: Sequence[str],
        ranks: DeviceMesh,
        *,
        emulate_bf16: bool = False,
    ) -> None:
        """Build the model with initial values on a one-dimensional mesh of ``ranks``; losses are told by ``domains``.

        Raises:
            UserError: if the ranks cannot be divided as the settings ask.
        """
        self._mesh = mesh = named(ranks, training)
        self.data_rank, self.data_ranks = data_rank(mesh), data_ranks(mesh)
        self._device, self._domains = torch.device(mesh.device_type), tuple(domains)
        self._all, self._speaks = ranks.get_group(), is_first_replica(mesh)
        self._clip_norm = training.clip_norm
        self._backend = choose_backend(training.attention, self._device)
        self.sharding = shard(model, training, vocabulary, mesh, emulate_bf16=emulate_bf16)
        self.shapes = self.sharding.shapes
        masters = Masters(self.sharding.masters, self.shapes, shard_group(mesh))
        self.optimizer = build_optimizer(masters, training)
        self._begin()

    def _begin(self) -> None:
        self._tally, self._transfer = Tally(self._domains, self._device), Transfer()

    def accumulate(self, batches: Sequence[Batch], count: int, rope: Rope) -> Later[Losses]:
        """Run micro-batches forward and backward; see ``Engine``."""
        transfer = self._transfer
        for number, batch in enumerate(batches):
            self.sharding.begin(last=number == len(batches) - 1)
            losses = losses_of(self.sharding.model, batch, rope, self._backend, self._device)
            (losses.sum() / count).backward()  # type: ignore[no-untyped-call]
            self._tally.add(batch, losses)
        return Later(lambda: self._losses(transfer.read()))

    def _losses(self, told: list[float]) -> Losses:
        middle = _HEADER + len(self._domains)
        return by_domain(self._domains, told[_HEADER:middle], told[middle:])

    @torch.no_grad()
    def step(self, rate: float, *, asks: bool = False) -> Later[Update]:
        """Update the weights; see ``Engine``."""
        gradients, transfer = self.sharding.gradients(), self._transfer
        # Replicas hold the same gradient: one of them speaks for all.
        own = squares(gradients) if self._speaks else torch.zeros((), dtype=torch.float64, device=self._device)
        flag = torch.full((1,), float(asks), dtype=torch.float64, device=self._device)
        told = torch.cat((own[None], flag, self._tally.sums.flatten()))
        dist.all_reduce(told, group=self._all)
        norm = told[_SQUARES].sqrt()
        self.optimizer.step(gradients, rate, clipping(norm, self._clip_norm), norm.isfinite())
        self.sharding.publish()
        transfer.send(told)
        self._begin()
        return Later(lambda: _update(transfer.read()))

    def evaluate(self, held_out: HeldOut, context_tokens: int, rows: int, rope: Rope) -> Losses:
        """Return the losses on held-out documents."""
        losses = held_out(self.sharding.model, context_tokens, rows, rope, self._backend)
        self.sharding.publish()
        return losses

    def state(self) -> dict[str, Part]:
        """Return masters and optimizer state by name."""
        masters = {name: State(rows, self.shapes[name], sharded=True) for name, rows in self.sharding.masters.items()}
        named = {f"model.{name}": state for name, state in masters.items()}
        named |= {f"optimizer.{name}": state for name, state in self.optimizer.state().items()}
        return {name: self._part(state) for name, state in named.items()}

    def _part(self, state: State) -> Part:
        replicas, shared = self._mesh.size(0), self._mesh.size(1)
        if not state.sharded:
            return Part(state.tensor, state.shape, replica=self.data_rank, replicas=self.data_ranks)
        first = first_row(state.shape[0], self._mesh.get_local_rank(SHARD), shared)
        return Part(state.tensor, state.shape, first, self._mesh.get_local_rank(DP), replicas)

    @property
    def updates(self) -> int:
        """Steps that changed the weights; waits for the device."""
        return self.optimizer.updates

    def loaded(self, updates: int) -> None:
        """Compute with the masters that were loaded."""
        self.optimizer.set_updates(updates)
        self.sharding.publish()

    def weights(self) -> Iterator[Tensor]:
        """Yield the masters, or their average if there is one, gathered one at a time."""
        rows = self.optimizer.rows if isinstance(self.optimizer, Averaged) else self.sharding.masters
        for name, master in rows.items():
            yield distributed(self.sharding, master, self.shapes[name]).full_tensor()


def _update(told: list[float]) -> Update:
    return Update(told[_SQUARES] ** 0.5, told[_ASKS] > 0)
