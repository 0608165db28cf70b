from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from shards.errors import UserError
from shards.training import ModelSettings, TrainSettings, parse_settings
from tests.trainer.synthetic_batches import VOCABULARY, step_rows
from trainer.attention import Backend, lay_out
from trainer.model import Decoder, initial_weight
from trainer.recompute import Recomputation
from trainer.rope import plain_rope

MODEL = ModelSettings(layers=3, width=24, heads=4, kv_heads=2, ffn_width=40)
WAYS = [Recomputation("selective"), *(Recomputation("blocks", every) for every in (1, 2, 8))]


def gradients(again: Recomputation, dtype: torch.dtype, backend: Backend, *, emulate: bool = False) -> list[Tensor]:
    model = Decoder(MODEL, VOCABULARY, emulate_bf16=emulate, recomputation=again)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, MODEL, 5))
    model.to(dtype)
    rows = step_rows(0)
    layout = lay_out(torch.from_numpy(rows.document), backend, torch.device("cpu"))
    tokens, positions, targets = map(torch.from_numpy, (rows.tokens, rows.positions, rows.targets))
    loss = model(tokens, positions, layout, plain_rope(6, 1e4), targets)
    loss.sum().backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("backend", ["documents", "dense"])
@pytest.mark.parametrize(
    ("dtype", "emulate"), [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)], ids=str
)
def test_every_way_has_the_same_bits(dtype: torch.dtype, emulate: bool, backend: Backend) -> None:
    expected = gradients(Recomputation(), dtype, backend, emulate=emulate)
    for again in WAYS:
        found = gradients(again, dtype, backend, emulate=emulate)
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            assert torch.equal(mine, theirs), again


def kept(again: Recomputation, layers: int) -> int:
    """Count the distinct bytes that a forward pass keeps for the backward pass."""
    settings = MODEL.model_copy(update={"layers": layers})
    model, rows = Decoder(settings, VOCABULARY, recomputation=again), step_rows(0)
    own = {parameter.untyped_storage()._cdata for parameter in model.parameters()}
    storages: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in own:
            storages[tensor.untyped_storage()._cdata] = tensor.untyped_storage()
        return tensor

    tokens, positions, targets = map(torch.from_numpy, (rows.tokens, rows.positions, rows.targets))
    layout = lay_out(torch.from_numpy(rows.document), "dense", torch.device("cpu"))
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(tokens, positions, layout, plain_rope(6, 1e4), targets)
    return sum(storage.nbytes() for storage in storages.values())


def test_a_block_keeps_its_input_only_and_a_segment_one_input() -> None:
    row_bytes = step_rows(0).tokens.size * MODEL.width * 4
    growth = {
        again: kept(again, 8) - kept(again, 4)
        for again in (Recomputation(), Recomputation("blocks"), Recomputation("blocks", 4))
    }
    assert growth[Recomputation("blocks")] == 4 * row_bytes
    assert growth[Recomputation("blocks", 4)] == row_bytes
    assert growth[Recomputation()] > 15 * 4 * row_bytes


def test_without_gradients_nothing_is_kept_to_be_computed_again() -> None:
    model, rows = Decoder(MODEL, VOCABULARY, recomputation=Recomputation("blocks", 2)), step_rows(0)
    layout = lay_out(torch.from_numpy(rows.document), "dense", torch.device("cpu"))
    tokens, positions = map(torch.from_numpy, (rows.tokens, rows.positions))
    with torch.no_grad():
        assert model(tokens, positions, layout, plain_rope(6, 1e4)).grad_fn is None


@pytest.mark.parametrize("how", ["none", "selective"])
def test_only_blocks_are_recomputed_together(how: str) -> None:
    with pytest.raises(UserError, match="has an effect only with recompute"):
        parse_settings(TrainSettings, {"recompute": how, "recompute_every": 2}, "here")


def test_settings_say_what_is_recomputed() -> None:
    for how, every in itertools.product(("none", "selective", "blocks"), (1, 3)):
        if every == 1 or how == "blocks":
            settings = TrainSettings.model_validate({"recompute": how, "recompute_every": every})
            assert Recomputation.of(settings) == Recomputation(settings.recompute, every)
