from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from shards.training import ModelSettings, TrainSettings
from tests.trainer.synthetic_batches import DOMAINS, VOCABULARY, micro_batches_of, step_rows
from trainer.attention import lay_out
from trainer.engine import DataParallelEngine
from trainer.micro_batch import mean_loss
from trainer.model import Decoder, initial_weight
from trainer.rope import plain_rope

MODEL = ModelSettings(layers=2, width=24, heads=2, ffn_width=40)
ROPE = plain_rope(12, 1e4)
RATES = (1e-2, 5e-3, 1e-3)


def engine_of(mesh: DeviceMesh, **settings: Any) -> DataParallelEngine:
    training = TrainSettings(**{"precision": "fp32", "seed": 5, "clip_norm": 0.5, **settings})
    return DataParallelEngine(MODEL, training, VOCABULARY, DOMAINS, mesh)


def train(engine: DataParallelEngine, steps: range = range(3)) -> tuple[list[float], list[float]]:
    sent = []
    for step in steps:
        count = step_rows(step).plan.targets
        batches = micro_batches_of(step, engine.data_rank, engine.data_ranks)
        losses = engine.accumulate(batches, count, ROPE)
        sent.append((losses, engine.step(RATES[step])))
    return [mean_loss(losses.get()) for losses, _ in sent], [update.get().norm for _, update in sent]


def bare() -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """The same training in a loop of plain torch, without a line of the engine or of an optimizer of ours."""
    model = Decoder(MODEL, VOCABULARY)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, MODEL, 5))
    groups: list[dict[str, Any]] = [{"params": [], "weight_decay": decay} for decay in (0.1, 0.0)]
    for name, parameter in model.named_parameters():
        groups[0 if TrainSettings().decays(name) else 1]["params"].append(parameter)
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step, rate in enumerate(RATES):
        rows = step_rows(step)
        layout = lay_out(torch.from_numpy(rows.document), "dense", torch.device("cpu"))
        tokens, positions, targets = map(torch.from_numpy, (rows.tokens, rows.positions, rows.targets))
        loss = model(tokens, positions, layout, ROPE, targets).sum() / (targets >= 0).sum()
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        for group in adam.param_groups:
            group["lr"] = rate
        adam.step()
        adam.zero_grad()
    return losses, norms, {name: parameter.detach() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_an_engine_trains_as_a_bare_loop_does(zero: int, mesh: DeviceMesh) -> None:
    engine = engine_of(mesh, zero=zero)
    losses, norms = train(engine)
    expected_losses, expected_norms, weights = bare()
    assert losses == pytest.approx(expected_losses, abs=2e-6)
    assert norms == pytest.approx(expected_norms, rel=1e-5)
    assert min(norms) > 0.5
    assert engine.updates == 3
    for name, whole in zip(engine.shapes, engine.weights(), strict=True):
        torch.testing.assert_close(whole, weights[name], rtol=1e-4, atol=2e-6)


def test_results_are_there_after_the_step_and_not_before(mesh: DeviceMesh) -> None:
    engine = engine_of(mesh)
    losses = engine.accumulate(micro_batches_of(0, 0, 1), 100, ROPE)
    with pytest.raises(RuntimeError, match="only after its update"):
        losses.get()
    update = engine.step(1e-3, asks=True)
    # The next step does not disturb what this one was.
    engine.accumulate(micro_batches_of(1, 0, 1), 100, ROPE)
    second = engine.step(1e-3)
    assert sum(targets for _, targets in losses.get().values()) == step_rows(0).plan.targets
    assert update.get().asks
    assert not second.get().asks


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_step_that_is_not_finite_is_skipped_where_it_is_computed(zero: int, mesh: DeviceMesh) -> None:
    engine, other = engine_of(mesh, zero=zero), engine_of(mesh, zero=zero)
    train(engine, range(1))
    train(other, range(1))
    # As after an overflow: the sum of losses is divided by nothing.
    engine.accumulate(micro_batches_of(1, 0, 1), 0, ROPE)
    assert not math.isfinite(engine.step(1e-2).get().norm)
    assert engine.updates == 1
    train(engine, range(1, 3))
    train(other, range(1, 3))
    for mine, theirs in zip(engine.weights(), other.weights(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_its_state_is_all_that_a_resume_needs(zero: int, mesh: DeviceMesh) -> None:
    straight, first, second = (engine_of(mesh, zero=zero) for _ in range(3))
    train(straight)
    train(first, range(2))
    for name, part in second.state().items():
        part.tensor.copy_(first.state()[name].tensor)
    second.loaded(first.updates)
    train(second, range(2, 3))
    for mine, theirs in zip(second.weights(), straight.weights(), strict=True):
        assert torch.equal(mine, theirs)
