"""Which rank holds what: ZeRO stages 0 to 3 (arXiv 1910.02054) behind one interface.

Masters, gradients and moments are always fp32; compute uses a copy in bf16 or fp32. Stage 0 is ``replicate``; stages 2
and 3 are FSDP2, which keeps or drops the gathered copy between forward and backward. Stage 1 is :class:`SharedUpdate`:
whole copies and gradients on every rank, each of which updates its share. At every stage a rank owns rows of each
parameter (``Shard(0)``) or all of it, so a checkpoint loads at any other stage and number of ranks. The stages divide
the state along the axis ``shard`` of the mesh; along ``dp`` there are replicas of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor

from shards.rank_memory import BUCKET_ELEMENTS
from shards.training import ModelSettings, TrainSettings
from trainer.mesh import DP, SHARD
from trainer.model import Decoder, initial_weight
from trainer.recompute import Recomputation


class Sharding(Protocol):
    """A model sharded over ranks, and the fp32 tensors that this rank updates."""

    model: Decoder
    mesh: DeviceMesh
    """The axis along which rows are divided, or at stage 0 replicated."""
    placements: tuple[Placement, ...]
    """How, along this one axis."""
    shapes: dict[str, torch.Size]
    masters: dict[str, Tensor]
    """This rank's rows of each parameter, by name: fp32, updated in place."""

    def begin(self, last: bool) -> None:
        """Announce a micro-batch before its forward, and whether it is the last of the step."""

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients of ``masters``, once after the last backward: fp32, summed over micro-batches, ranks."""

    def publish(self) -> None:
        """Make the next forward use the updated masters, and drop the gradients."""


def shard(
    settings: ModelSettings,
    training: TrainSettings,
    vocabulary: int,
    mesh: DeviceMesh,
    *,
    emulate_bf16: bool = False,
) -> Sharding:
    """Build the model with initial values; only one parameter at a time is whole in memory (at stage 1, all are).

    Args:
        settings: shape of the model.
        training: its ZeRO stage, precision and seed.
        vocabulary: size of the tokeniser's vocabulary.
        mesh: the axes of ``trainer.mesh.named``.
        emulate_bf16: see ``trainer.bf16``.
    """
    with torch.device("meta"):
        again = Recomputation.of(training)
        model = Decoder(settings, vocabulary, emulate_bf16=emulate_bf16, recomputation=again, z_loss=training.z_loss)
    if training.stage == 1:
        return SharedUpdate(model, training, mesh)
    return Fsdp(model, training, mesh)


def distributed(sharding: Sharding, local: Tensor, shape: torch.Size) -> DTensor:
    """Return a rank's rows of a tensor of ``shape``, owned as rows of the parameters are, as part of the whole."""
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, sharding.mesh, sharding.placements, run_check=False, shape=shape, stride=stride)


def _initial(
    name: str, shape: torch.Size, mesh: DeviceMesh, how: tuple[Placement, ...], model: ModelSettings, seed: int
) -> Tensor:
    whole = initial_weight(name, shape, model, seed).to(mesh.device_type)
    # Without a source rank nothing is sent: every rank has made the same tensor.
    return distribute_tensor(whole, mesh, how, src_data_rank=None).to_local()


class Fsdp:
    """Stages 0, 2 and 3, with FSDP2 and its sibling ``replicate``."""

    def __init__(self, model: Decoder, training: TrainSettings, mesh: DeviceMesh) -> None:
        """Take a model on the meta device."""
        self.model, self._accumulates_whole = model, training.stage == 0 or training.reduce_once
        self.mesh = mesh[DP if training.stage == 0 else SHARD]
        policy = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16 if training.precision == "bf16" else None,
            reduce_dtype=torch.float32,
            cast_forward_inputs=False,  # rotary tables stay fp32
        )
        for part in (*self.model.blocks, self.model):
            if training.stage == 0:
                replicate(part, mesh=self.mesh, mp_policy=policy)
            else:
                # The root's own parameters (embeddings) end the forward and begin the backward: keep them in between.
                keep = training.stage == 2 or part is self.model
                axes = mesh if mesh.size(0) > 1 else self.mesh
                fully_shard(part, mesh=axes, mp_policy=policy, reshard_after_forward=not keep)
        for module in self._units():
            # The loss is divided by the number of targets in the step: gradients are summed over ranks, not averaged.
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
        self.model.to_empty(device=mesh.device_type)
        self._parameters = {name: cast(DTensor, p) for name, p in self.model.named_parameters()}
        self.shapes = {name: p.shape for name, p in self._parameters.items()}
        self.placements: tuple[Placement, ...] = (Replicate() if training.stage == 0 else Shard(0),)
        self.masters = {name: cast(DTensor, p.detach()).to_local() for name, p in self._parameters.items()}
        for name, master in self.masters.items():
            master.copy_(_initial(name, self.shapes[name], self.mesh, self.placements, model.settings, training.seed))

    def _units(self) -> list[FSDPModule]:
        return [cast(FSDPModule, m) for m in self.model.modules() if isinstance(m, FSDPModule)]

    def begin(self, last: bool) -> None:
        """Reduce once, at the end, at stage 0 and where it is asked for; else every micro-batch, as shares.

        Whole copies then stay from one micro-batch to the next as well.
        """
        if self._accumulates_whole:
            root = cast(FSDPModule, self.model)
            root.set_requires_gradient_sync(last)
            root.set_reshard_after_backward(last)

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients that FSDP reduced."""
        return {name: cast(DTensor, p.grad).to_local() for name, p in self._parameters.items()}

    def publish(self) -> None:
        """Drop gathered copies, which an evaluation without backward leaves behind; the next forward gathers again."""
        for parameter in self._parameters.values():
            parameter.grad = None
        for module in self._units():
            module.reshard()


class SharedUpdate:
    """Stage 1: whole parameters and gradients on every rank, masters and moments sharded by rows."""

    def __init__(self, model: Decoder, training: TrainSettings, mesh: DeviceMesh) -> None:
        """Take a model on the meta device."""
        self.model, self.mesh = model, mesh[SHARD]
        self.placements: tuple[Placement, ...] = (Shard(0),)
        self._group, self._ranks = self.mesh.get_group(), self.mesh.size()
        self._replicas = mesh.get_group(DP) if mesh.size(0) > 1 else None
        self.model.to(torch.bfloat16 if training.precision == "bf16" else torch.float32)
        self.model.to_empty(device=mesh.device_type)
        if model.settings.tie_embeddings:
            self.model.head.weight = self.model.embedding.weight
        self._parameters = dict(self.model.named_parameters())
        self.shapes = {name: p.shape for name, p in self._parameters.items()}
        self.masters = {
            name: _initial(name, shape, self.mesh, self.placements, model.settings, training.seed).clone()
            for name, shape in self.shapes.items()
        }
        self._sums: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            parameter.register_post_accumulate_grad_hook(self._adder(name))  # type: ignore[no-untyped-call]
        self.publish()

    def _adder(self, name: str) -> Any:
        def add(parameter: Tensor) -> None:
            gradient, parameter.grad = cast(Tensor, parameter.grad), None
            if name in self._sums:
                self._sums[name] += gradient
            else:
                self._sums[name] = gradient.float()

        return add

    def _buckets(self) -> Iterator[list[str]]:
        bucket: list[str] = []
        elements = 0
        for name, shape in self.shapes.items():
            bucket.append(name)
            elements += shape.numel()
            if elements >= BUCKET_ELEMENTS:
                yield bucket
                bucket, elements = [], 0
        if bucket:
            yield bucket

    def _rows(self, name: str) -> int:
        """Return the rows of a parameter per rank, including padding on the last ranks."""
        return -(-self.shapes[name][0] // self._ranks)

    def _padded(self, tensor: Tensor, rows: int) -> Tensor:
        missing = rows - tensor.shape[0]
        return torch.cat((tensor, tensor.new_zeros(missing, *tensor.shape[1:]))) if missing else tensor

    def begin(self, last: bool) -> None:
        """Do nothing: gradients are summed over ranks when they are asked for."""

    def gradients(self) -> dict[str, Tensor]:
        """Return the sums over ranks, reduced bucket by bucket."""
        shares: dict[str, Tensor] = {}
        for bucket in self._buckets():
            whole = torch.cat(
                [
                    self._padded(self._sums.pop(name), self._rows(name) * self._ranks).reshape(self._ranks, -1)
                    for name in bucket
                ],
                dim=1,
            )
            share = whole.new_empty(whole.shape[1])
            dist.reduce_scatter_single(share, whole.flatten(), group=self._group)
            if self._replicas is not None:
                dist.all_reduce(share, group=self._replicas)
            shares |= self._cut(share, bucket)
        return shares

    def _cut(self, share: Tensor, bucket: list[str]) -> dict[str, Tensor]:
        shares, offset = {}, 0
        for name in bucket:
            rows, rest = self._rows(name), self.shapes[name][1:]
            size = rows * rest.numel()
            padded = share[offset : offset + size].view(rows, *rest)
            shares[name] = padded[: self.masters[name].shape[0]]
            offset += size
        return shares

    @torch.no_grad()
    def publish(self) -> None:
        """Gather the masters of all ranks, cast to the dtype of compute, into the whole copies."""
        dtype = next(iter(self._parameters.values())).dtype
        for bucket in self._buckets():
            share = torch.cat([self._padded(self.masters[n], self._rows(n)).flatten() for n in bucket]).to(dtype)
            whole = share.new_empty(self._ranks * share.numel())
            dist.all_gather_single(whole, share, group=self._group)
            parts, offset = whole.view(self._ranks, -1), 0
            for name in bucket:
                shape, size = self.shapes[name], self._rows(name) * self.shapes[name][1:].numel()
                rows = parts[:, offset : offset + size].reshape(-1, *shape[1:])
                self._parameters[name].copy_(rows[: shape[0]])
                offset += size
