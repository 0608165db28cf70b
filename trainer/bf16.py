"""bf16 products on any processor: by its own instructions, or emulated through fp32.

A CPU without bf16 instructions multiplies bf16 matrices 10 to 100 times slower than fp32 ones. *Emulated* means that
the operands are bf16, their products are summed in fp32 by the fp32 kernels, and the result is rounded to bf16: what
the instructions do, at the price of fp32. Which of the two is used follows from what the processor can do, never from a
clock, and a training keeps to one of them from its first step to its last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shards.errors import UserError
from shards.training import Bf16, Bf16Setting

_EXACT: Final = "operands rounded to bf16, products summed in fp32"


@dataclass(frozen=True)
class Choice:
    """How a training computes in bf16, and why, for the line that it starts with."""

    way: Bf16
    why: str

    @property
    def line(self) -> str:
        """What the screen says."""
        return f"bf16: {self.way} ({self.why})" + (f"; {_EXACT}" if self.way == "emulated" else "")


def has_bf16(device: torch.device) -> bool:
    """Tell whether a device multiplies bf16 matrices by instructions of its own that torch may use.

    oneDNN says yes of every processor with AVX-512, but without the bf16 instructions its bf16 products take twice as
    long as fp32 ones; so the processor has to have them, and torch's own kernels must not be held to an older one.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not _onednn_takes_bf16():
        return False
    features = torch.cpu.get_capabilities()
    if features.get("architecture") != "x86_64":
        return True  # on Arm, oneDNN asks for the instructions themselves
    vectors = torch.backends.cpu.get_cpu_capability()
    return vectors.startswith("AVX512") and bool(features.get("avx512_bf16") or features.get("amx_bf16"))


def _onednn_takes_bf16() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def choose_bf16(
    setting: Bf16Setting,
    recorded: Bf16 | None,
    device: torch.device,
    place: str,
    has: Callable[[torch.device], bool] = has_bf16,
) -> Choice:
    """Choose how a training computes in bf16.

    Args:
        setting: ``training.bf16``.
        recorded: what the checkpoint that it resumes from was trained with; None for a fresh training.
        device: where it computes.
        place: of the checkpoint, for messages.
        has: tells whether a device has bf16 instructions.

    Raises:
        UserError: if the checkpoint was trained the other way, or by instructions that this device lacks.
    """
    if setting != "auto":
        if recorded not in (None, setting):
            raise UserError(
                f"the checkpoint was trained with {recorded} bf16, and training.bf16 asks for {setting}",
                place=place,
                remedy=f'Set training.bf16 = "{recorded}" or "auto" to resume it, or start again with --fresh',
            )
        return Choice(setting, "training.bf16 asks for it")
    if recorded == "native" and not has(device):
        raise UserError(
            f"the checkpoint was trained with native bf16, and {_name(device)} has no bf16 instructions",
            place=place,
            remedy="Resume it on a processor that has them, start again with --fresh, or accept a training that is "
            'tens of times slower with training.bf16 = "native"',
        )
    if recorded is not None:
        return Choice(recorded, "as in the checkpoint")
    if has(device):
        return Choice("native", f"{_name(device)} has bf16 instructions")
    return Choice("emulated", f"{_name(device)} has no bf16 instructions")


def _name(device: torch.device) -> str:
    if device.type != "cpu":
        return f"this {device.type.upper()} device"
    return f"this {torch.backends.cpu.get_cpu_capability()} CPU"


class Linear(nn.Linear):
    """A product with a weight and nothing added, in the dtype of its input; bf16 emulated where that is asked for."""

    def __init__(self, inputs: int, outputs: int, *, emulate_bf16: bool) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.emulate_bf16 = emulate_bf16

    def forward(self, states: Tensor) -> Tensor:
        """Multiply: (..., inputs) in, (..., outputs) out."""
        if not self.emulate_bf16:
            return F.linear(states, self.weight)
        out: Tensor = _EmulatedProduct.apply(states, self.weight)  # type: ignore[no-untyped-call]
        return out


class _EmulatedProduct(torch.autograd.Function):
    """``states @ weight.T`` of bf16 tensors through fp32, its three products alike; it keeps the bf16 tensors only."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return F.linear(states.float(), weight.float()).to(torch.bfloat16)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        states, weight = ctx.saved_tensors
        gradient = gradients[0].float()
        of_states = of_weight = None
        if ctx.needs_input_grad[0]:
            of_states = (gradient @ weight.float()).to(torch.bfloat16)
        if ctx.needs_input_grad[1]:
            outputs, inputs = weight.shape
            rows = gradient.reshape(-1, outputs), states.float().reshape(-1, inputs)
            of_weight = (rows[0].T @ rows[1]).to(torch.bfloat16)
        return of_states, of_weight
