"""bf16 products through fp32 are those of the instructions; what is chosen follows from the processor alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from shards.errors import UserError
from shards.training import Bf16, Bf16Setting, ModelSettings
from tests.trainer.processor import OLDER, needs_bf16, on_x86
from trainer import model as model_module
from trainer.attention import Backend, attend, lay_out
from trainer.bf16 import Linear, choose_bf16
from trainer.model import Decoder, initial_weight
from trainer.rope import plain_rope

CPU = torch.device("cpu")
EPSILON = 2.0**-8
"""Largest relative error of rounding to bf16: half a unit in the last of eight bits."""

MODEL = ModelSettings(layers=2, width=64, heads=4, kv_heads=2)
VOCABULARY = 211


def _random(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def _products(layer: Linear, states: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return (output, gradient of the states, gradient of the weight)."""
    leaf = states.detach().requires_grad_()
    layer.weight.grad = None
    out = layer(leaf)
    out.backward(gradient)
    assert leaf.grad is not None
    assert layer.weight.grad is not None
    return out.detach(), leaf.grad, layer.weight.grad


def _linear(inputs: int, outputs: int, seed: int, *, emulate_bf16: bool = True) -> Linear:
    layer = Linear(inputs, outputs, emulate_bf16=emulate_bf16).bfloat16()
    with torch.no_grad():
        layer.weight.copy_(_random(outputs, inputs, seed=seed))
    return layer


@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=2),
    inputs=st.integers(1, 80),
    outputs=st.integers(1, 80),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=40)
def test_all_three_products_are_exact_sums_rounded_once(shape: list[int], inputs: int, outputs: int, seed: int) -> None:
    layer, states = _linear(inputs, outputs, seed), _random(*shape, inputs, seed=seed + 1)
    gradient = _random(*shape, outputs, seed=seed + 2)
    found = _products(layer, states, gradient)
    wide, weight, slope = states.double(), layer.weight.detach().double(), gradient.double()
    rows = slope.reshape(-1, outputs), wide.reshape(-1, inputs)
    exact = wide @ weight.T, slope @ weight, rows[0].T @ rows[1]
    sizes = wide.abs() @ weight.abs().T, slope.abs() @ weight.abs(), rows[0].abs().T @ rows[1].abs()
    for value, right, size in zip(found, exact, sizes, strict=True):
        assert value.dtype == torch.bfloat16
        assert value.shape == right.shape
        # One rounding to bf16, beside errors of fp32 sums, which grow with the terms and not with their sum.
        assert bool(((value.double() - right).abs() <= EPSILON * right.abs() + 1e-5 * size).all())


@needs_bf16
def test_products_are_those_of_the_instructions() -> None:
    states, gradient = _random(3, 50, 96, seed=1), _random(3, 50, 160, seed=2)
    emulated = _products(_linear(96, 160, 0), states, gradient)
    native = _products(_linear(96, 160, 0, emulate_bf16=False), states, gradient)
    for one, other in zip(emulated, native, strict=True):
        # The same but where another order of summing fell on the other side of a rounding: one unit in the last place.
        torch.testing.assert_close(one, other, rtol=2 * EPSILON, atol=1e-3)
        assert (one == other).float().mean() > 0.98


def test_without_emulation_any_type_is_multiplied() -> None:
    layer = Linear(3, 2, emulate_bf16=False)
    states = torch.randn(4, 3)
    assert torch.equal(layer(states), states @ layer.weight.T)


@pytest.mark.parametrize("backend", ["documents", "dense"])
def test_attention_is_fp32_attention_on_bf16_values(backend: Backend) -> None:
    segments = torch.tensor([[0] * 10 + [1] * 22, [2] * 32])
    states = [_random(2, 32, heads, 16, seed=heads) for heads in (4, 2)]
    query, key, value = (s.requires_grad_() for s in (states[0], states[1], _random(2, 32, 2, 16, seed=7)))
    layout = lay_out(segments, backend, CPU)
    found = attend(query, key, value, layout, emulate_bf16=True)
    expected = attend(query.detach().float(), key.detach().float(), value.detach().float(), layout)
    assert torch.equal(found, expected.bfloat16())
    slope = _random(*found.shape, seed=9)
    found.backward(slope)
    wide = [leaf.detach().float().requires_grad_() for leaf in (query, key, value)]
    attend(*wide, layout).backward(slope.float())
    for leaf, right in zip((query, key, value), wide, strict=True):
        assert leaf.grad is not None
        assert right.grad is not None
        assert leaf.grad.dtype == torch.bfloat16
        # Of keys and values that several queries share, each query's part is rounded and then their sum.
        torch.testing.assert_close(leaf.grad.float(), right.grad, rtol=2 * EPSILON, atol=2 * EPSILON)


def _decoder(dtype: torch.dtype, *, emulate_bf16: bool = False) -> Decoder:
    """Build a model whose weights are bf16 numbers whatever their type, so that only computing differs."""
    decoder = Decoder(MODEL, VOCABULARY, emulate_bf16=emulate_bf16)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.copy_((3 * initial_weight(name, parameter.shape, MODEL, 0)).bfloat16())
    return decoder.to(dtype)


def _loss(decoder: Decoder, backend: Backend = "documents") -> tuple[float, dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, VOCABULARY, (2, 64), generator=generator)
    targets = torch.randint(0, VOCABULARY, (2, 64), generator=generator)
    segments = torch.tensor([[0] * 20 + [1] * 44, [0] * 64])
    positions = torch.cat([torch.arange(20), torch.arange(44), torch.arange(64)]).view(2, 64)
    rope = plain_rope(MODEL.head_width, 10_000.0)
    loss = decoder(tokens, positions, lay_out(segments, backend, CPU), rope, targets).mean()
    loss.backward()
    return loss.item(), {name: p.grad.float() for name, p in decoder.named_parameters() if p.grad is not None}


def _distances(one: dict[str, Tensor], other: dict[str, Tensor]) -> list[float]:
    """Return how far apart two gradients are, by parameter, as a share of their length."""
    assert one.keys() == other.keys()
    return [float((one[n] - other[n]).norm() / other[n].norm()) for n in one]


def test_a_model_is_within_bf16s_error_of_fp32() -> None:
    loss, gradients = _loss(_decoder(torch.bfloat16, emulate_bf16=True))
    exact, exact_gradients = _loss(_decoder(torch.float32))
    # Some tens of roundings lie between a weight and the loss; independent errors add as a root does.
    assert loss == pytest.approx(exact, rel=2 * EPSILON)
    assert max(_distances(gradients, exact_gradients)) < 8 * EPSILON


@needs_bf16
def test_a_model_is_as_near_to_fp32_as_by_the_instructions() -> None:
    loss, gradients = _loss(_decoder(torch.bfloat16, emulate_bf16=True))
    native_loss, native_gradients = _loss(_decoder(torch.bfloat16))
    _, exact_gradients = _loss(_decoder(torch.float32))
    assert loss == pytest.approx(native_loss, rel=EPSILON)
    emulated, native = (max(_distances(g, exact_gradients)) for g in (gradients, native_gradients))
    assert emulated < 1.5 * native


@contextmanager
def _products_seen() -> Iterator[list[tuple[str, torch.dtype]]]:
    """Collect (operation, type of its first matrix) of every matrix product, forward and backward."""
    seen: list[tuple[str, torch.dtype]] = []
    words = ("mm", "matmul", "linear", "attention", "addmv", "mv", "dot")

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            if any(word in name for word in words):
                seen.append((name, next(a.dtype for a in args if isinstance(a, Tensor))))
            return func(*args, **(kwargs or {}))

    with Watch():
        yield seen


@pytest.mark.parametrize("backend", ["documents", "dense"])
@pytest.mark.parametrize("max_logits", [1 << 26, 1_000])
def test_no_product_anywhere_is_left_to_bf16_kernels(
    backend: Backend, max_logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_module, "MAX_LOGITS", max_logits)
    with _products_seen() as seen:
        _loss(_decoder(torch.bfloat16, emulate_bf16=True), backend)
    assert {dtype for _, dtype in seen} == {torch.float32}
    # Seven projections a layer and the head, each forward and twice backward.
    assert sum("mm" in name for name, _ in seen) >= 3 * (7 * MODEL.layers + 1)
    assert any("attention" in name for name, _ in seen)
    # The watch would have seen them.
    with _products_seen() as seen:
        _loss(_decoder(torch.bfloat16), backend)
    assert torch.bfloat16 in {dtype for _, dtype in seen}


@pytest.mark.parametrize(
    ("setting", "recorded", "has", "mode"),
    [
        ("auto", None, True, "native"),
        ("auto", None, False, "emulated"),
        ("auto", "native", True, "native"),
        ("auto", "emulated", True, "emulated"),
        ("auto", "emulated", False, "emulated"),
        ("native", None, False, "native"),
        ("native", "native", False, "native"),
        ("emulated", None, True, "emulated"),
        ("emulated", "emulated", True, "emulated"),
    ],
)
def test_what_is_chosen(setting: Bf16Setting, recorded: Bf16 | None, has: bool, mode: Bf16) -> None:
    choice = choose_bf16(setting, recorded, CPU, "here", supports=lambda device: has)
    assert choice.mode == mode
    assert choice.line.startswith(f"bf16: {mode} (")
    assert "\n" not in choice.line
    assert ("slow" in choice.line) == (setting == "native" and not has)


@pytest.mark.parametrize(
    ("setting", "recorded", "has", "what"),
    [
        ("emulated", "native", True, "trained with native bf16, and training.bf16 asks for emulated"),
        ("native", "emulated", True, "trained with emulated bf16, and training.bf16 asks for native"),
        ("auto", "native", False, "CPU has no bf16 instructions"),
    ],
)
def test_a_resume_that_would_compute_otherwise_is_refused(
    setting: Bf16Setting, recorded: Bf16, has: bool, what: str
) -> None:
    with pytest.raises(UserError, match=what) as caught:
        choose_bf16(setting, recorded, CPU, "here", supports=lambda device: has)
    assert caught.value.place == "here/checkpoints"
    assert "'headrace train here --fresh'" in caught.value.remedy


LIMITS = [*({name: value} for name, value in OLDER.items()), OLDER, {"ONEDNN_MAX_CPU_ISA": "avx512_core"}]


@pytest.mark.integration
@on_x86
@pytest.mark.parametrize("limit", LIMITS)
def test_a_processor_that_is_held_to_an_older_one_has_no_bf16(limit: dict[str, str]) -> None:
    code = "import torch; from trainer.bf16 import has_bf16; print(has_bf16(torch.device('cpu')))"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **limit}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
