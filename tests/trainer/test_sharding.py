from __future__ import annotations

import gc
from typing import Any, Literal

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from shards.training import ModelSettings, TrainSettings
from trainer.attention import lay_out
from trainer.mesh import named
from trainer.model import Decoder, initial_weight
from trainer.optimizer import build_optimizer, clipping, squares
from trainer.optimizers.base import Masters, Optimizer
from trainer.rope import plain_rope
from trainer.sharding import Sharding, SharedUpdate, distributed, shard

MODEL = ModelSettings(layers=2, width=24, heads=2, ffn_width=40)
TIED = MODEL.model_copy(update={"tie_embeddings": True})
VOCABULARY = 61
CONTEXT = 16
RATES = (1e-2, 5e-3, 1e-3)


def micro_batches(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(step)
    return [torch.randint(0, VOCABULARY, (2, CONTEXT + 1), generator=generator) for _ in range(3)]


def loss_of(model: torch.nn.Module, rows: Tensor, count: int) -> Tensor:
    tokens, targets = rows[:, :-1], rows[:, 1:]
    layout = lay_out(torch.zeros_like(tokens), "documents", torch.device("cpu"))
    positions = torch.arange(CONTEXT).expand(2, CONTEXT)
    losses: Tensor = model(tokens, positions, layout, plain_rope(12, 10_000.0), targets)
    return losses.sum() / count


def train(sharding: Sharding, optimizer: Optimizer) -> list[float]:
    losses = []
    for step, rate in enumerate(RATES):
        total, batches = 0.0, micro_batches(step)
        for number, rows in enumerate(batches):
            sharding.begin(last=number == len(batches) - 1)
            loss = loss_of(sharding.model, rows, len(batches) * 2 * CONTEXT)
            loss.backward()
            total += loss.item()
        gradients = sharding.gradients()
        norm = squares(gradients).sqrt()
        optimizer.step(gradients, rate, clipping(norm, settings_of(0).clip_norm), norm.isfinite())
        sharding.publish()
        losses.append(total)
    return losses


def reference(model: ModelSettings, settings: TrainSettings) -> tuple[list[float], dict[str, Tensor]]:
    """Train in one process with nothing but torch: no sharding, no optimiser of ours."""
    decoder = Decoder(model, VOCABULARY)
    parameters = dict(decoder.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(initial_weight(name, parameter.shape, model, settings.seed))
    adam = torch.optim.AdamW(
        [
            {
                "params": [p for n, p in parameters.items() if TrainSettings().decays(n)],
                "weight_decay": settings.weight_decay,
            },
            {"params": [p for n, p in parameters.items() if not TrainSettings().decays(n)], "weight_decay": 0.0},
        ],
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
    )
    losses = []
    for step, rate in enumerate(RATES):
        loss = loss_of(decoder, torch.cat(micro_batches(step)).view(3, 2, -1)[0], 96)
        loss = loss + sum(loss_of(decoder, rows, 96) for rows in micro_batches(step)[1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), settings.clip_norm)
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        adam.zero_grad()
        losses.append(loss.item())
    return losses, {name: p.detach() for name, p in parameters.items()}


def copies(sharding: Sharding) -> list[Tensor]:
    """The tensors held for compute at this moment, besides masters: gathered parameters, and sums of stage 1."""
    whole = [p for p in sharding.model.parameters() if not isinstance(p, DTensor)]
    return [*whole, *sharding._sums.values()] if isinstance(sharding, SharedUpdate) else whole


def settings_of(zero: Any, precision: Literal["bf16", "fp32"] = "fp32") -> TrainSettings:
    return TrainSettings(zero=zero, precision=precision, seed=5, clip_norm=0.5)


def build(zero: int, mesh: DeviceMesh, model: ModelSettings = MODEL, precision: Any = "fp32") -> Any:
    settings = settings_of(zero, precision)
    sharding = shard(model, settings, VOCABULARY, named(mesh, settings))
    return sharding, build_optimizer(Masters(sharding.masters, sharding.shapes), settings)


@pytest.mark.parametrize("model", [MODEL, TIED], ids=["untied", "tied"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_every_stage_trains_as_plain_torch_does(zero: int, model: ModelSettings, mesh: DeviceMesh) -> None:
    sharding, optimizer = build(zero, mesh, model)
    losses, weights = reference(model, settings_of(zero))
    assert train(sharding, optimizer) == pytest.approx(losses, abs=2e-6)
    assert sharding.masters.keys() == weights.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(sharding.masters[name], weight, rtol=1e-4, atol=2e-6)
    start = initial_weight("head.weight", torch.Size([VOCABULARY, MODEL.width]), model, 5)
    assert model.tie_embeddings or not torch.allclose(weights["head.weight"], start, atol=1e-3)


def test_stages_agree_in_bf16_with_fp32_masters(mesh: DeviceMesh) -> None:
    runs = {zero: train(*build(zero, mesh, precision="bf16")) for zero in (0, 1, 2, 3)}
    full = train(*build(3, mesh))
    for losses in runs.values():
        assert losses == pytest.approx(runs[3], abs=1e-6)
        assert losses == pytest.approx(full, abs=2e-2)
        assert losses != full


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_bytes_per_parameter_are_those_of_the_formula(zero: int, precision: Any, mesh: DeviceMesh) -> None:
    sharding, optimizer = build(zero, mesh, precision=precision)
    train(sharding, optimizer)
    # In the middle of a step: the gradient of one micro-batch is there, and the forward of the next has run.
    first, second, _ = micro_batches(9)
    sharding.begin(last=True)
    loss_of(sharding.model, first, 96).backward()
    in_forward: list[int] = []
    sharding.begin(last=True)
    loss = loss_of(sharding.model, second, 96)
    if zero != 3:  # stage 3 holds a block's copy at a time, no whole one
        in_forward = [t.untyped_storage().nbytes() for t in copies(sharding)]
    loss.backward()
    gradients = [] if zero == 1 else list(sharding.gradients().values())
    moments = [state.tensor for state in optimizer.state().values()]
    held = [*sharding.masters.values(), *moments, *gradients]
    total = sum(t.numel() * t.element_size() for t in held) + sum(in_forward)
    if zero == 1:  # the sums of gradients were counted among the copies
        assert len(copies(sharding)) == 2 * len(sharding.masters)
    parameters = MODEL.parameters(VOCABULARY)
    assert total == pytest.approx(settings_of(zero, precision).bytes_per_parameter(1) * parameters, rel=0.01)


def test_stage_3_drops_a_block_after_its_forward_and_stage_2_keeps_it(mesh: DeviceMesh) -> None:
    parameters = MODEL.parameters(VOCABULARY)
    kept = {}
    for zero in (2, 3):
        sharding, _ = build(zero, mesh)
        loss = loss_of(sharding.model, micro_batches(0)[0], 96)
        kept[zero] = sum(copy.numel() for copy in copies(sharding))
        del loss, sharding
        gc.collect()
    assert kept == {2: parameters, 3: 2 * VOCABULARY * MODEL.width + MODEL.width}


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_an_evaluation_between_updates_sees_the_new_weights(zero: int, mesh: DeviceMesh) -> None:
    sharding, _ = build(zero, mesh)
    rows = micro_batches(0)[0]
    with torch.no_grad():
        before = loss_of(sharding.model, rows, 32).item()
        for master in sharding.masters.values():
            master.mul_(1.5)
        sharding.publish()
        after = loss_of(sharding.model, rows, 32).item()
    assert before != after
    assert after != pytest.approx(before, abs=1e-4)


def test_a_share_knows_the_whole_it_is_part_of(mesh: DeviceMesh) -> None:
    sharding, _ = build(3, mesh)
    name = "blocks.1.feed_forward.down.weight"
    whole = distributed(sharding, sharding.masters[name], sharding.shapes[name])
    assert whole.shape == (24, 40)
    assert F.mse_loss(whole.full_tensor(), sharding.masters[name]).item() == 0.0
    assert whole.to_local().data_ptr() == sharding.masters[name].data_ptr()


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_only_stage_0_replicates(zero: int, mesh: DeviceMesh) -> None:
    assert build(zero, mesh)[0].placements[0].is_replicate() == (zero == 0)
