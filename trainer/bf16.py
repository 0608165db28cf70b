"""bf16 products on any processor: by its own instructions, or emulated through fp32.

A CPU without bf16 instructions multiplies bf16 matrices slower than fp32 ones: 2 times with AVX-512, 10 to 100 times
without. *Emulated* means that the operands are bf16, their products are summed in fp32 by the fp32 kernels, and the
result is rounded to bf16: what the instructions do, at the price of fp32. Which of the two is used follows from what
the processor can do, never from a clock, and a training keeps the mode that it began with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shards.errors import UserError
from shards.training import Bf16, Bf16Setting

# Limits on oneDNN under which it says that it takes bf16, and has no instructions for it.
_ISA_WITHOUT_BF16: Final = ("AVX512_CORE", "AVX512_CORE_VNNI")

_EMULATION: Final = "operands rounded to bf16, products summed in fp32"


@dataclass(frozen=True)
class Bf16Choice:
    """How a training computes in bf16, and why, for the line that it starts with."""

    mode: Bf16
    why: str

    @property
    def line(self) -> str:
        """What the screen says."""
        return f"bf16: {self.mode} ({self.why})" + (f"; {_EMULATION}" if self.mode == "emulated" else "")


def has_bf16(device: torch.device) -> bool:
    """Return whether a device multiplies bf16 matrices by instructions of its own that torch may use.

    oneDNN says yes for every processor with AVX-512, but without the bf16 instructions its bf16 products take twice as
    long as fp32 ones. So the processor has to have them, and neither oneDNN nor torch may be held to an older one by
    ``ONEDNN_MAX_CPU_ISA`` or ``ATEN_CPU_CAPABILITY``.
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
    held_to = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", ""))
    return available and held_to.upper() not in _ISA_WITHOUT_BF16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def choose_bf16(
    setting: Bf16Setting,
    recorded: Bf16 | None,
    device: torch.device,
    folder: str,
    supports: Callable[[torch.device], bool] = has_bf16,
) -> Bf16Choice:
    """Choose how a training computes in bf16.

    Args:
        setting: ``training.bf16``.
        recorded: what the checkpoint that it resumes from was trained with; None for a fresh training.
        device: where it computes.
        folder: of the run, for messages.
        supports: tells whether a device has bf16 instructions.

    Raises:
        UserError: if the checkpoint was trained the other way, or by instructions that this device lacks.
    """
    if setting != "auto":
        if recorded not in (None, setting):
            raise UserError(
                f"the checkpoint was trained with {recorded} bf16, and training.bf16 asks for {setting}",
                place=f"{folder}/checkpoints",
                remedy=f'Resume with training.bf16 = "{recorded}" or "auto" in the recipe, or start again with '
                f"'headrace train {folder} --fresh'",
            )
        slow = setting == "native" and not supports(device)
        why = f", and is slow: {_name(device)} has no bf16 instructions" if slow else ""
        return Bf16Choice(setting, f"training.bf16 asks for it{why}")
    if recorded == "native" and not supports(device):
        raise UserError(
            f"the checkpoint was trained with native bf16, and {_name(device)} has no bf16 instructions",
            place=f"{folder}/checkpoints",
            remedy="Resume it on a processor that has them, start again with "
            f"'headrace train {folder} --fresh', or accept much slower training with "
            f"'headrace run RECIPE --out {folder} training.bf16=native'",
        )
    if recorded is not None:
        return Bf16Choice(recorded, "as in the checkpoint")
    if supports(device):
        return Bf16Choice("native", f"{_name(device)} has bf16 instructions")
    return Bf16Choice("emulated", f"{_name(device)} has no bf16 instructions")


def _name(device: torch.device) -> str:
    if device.type != "cpu":
        return f"this {device.type.upper()} device"
    return f"this {torch.backends.cpu.get_cpu_capability()} CPU"


class Linear(nn.Linear):
    """A product with a weight and nothing added, in the dtype of its input.

    With ``emulate_bf16`` input and weight have to be bf16.
    """

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
    """``states @ weight.T`` of bf16 tensors through fp32, forward and backward; what it keeps is bf16."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        assert states.dtype == weight.dtype == torch.bfloat16
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
