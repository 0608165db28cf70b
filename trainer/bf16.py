"""bf16 products on any processor: with its own instructions, or emulated in fp32.

Without bf16 instructions, a CPU multiplies bf16 matrices more slowly than fp32 ones: 2 times with AVX-512, 10 to 100
times without. *Emulated* means that the operands are bf16, their products are summed in fp32 by the fp32 kernels, and
the result is rounded to bf16, which is what the instructions do, at the cost of fp32. Which of the two is used depends
on what the processor supports, never on a timing, and a training keeps the mode that it began with.
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

# Limits under which oneDNN reports bf16 support although it has no instructions for it.
_ISA_WITHOUT_BF16: Final = ("AVX512_CORE", "AVX512_CORE_VNNI")

_EMULATION: Final = "operands rounded to bf16, products summed in fp32"


@dataclass(frozen=True)
class Bf16Choice:
    """How a training computes in bf16, and why, as it is announced at the start."""

    mode: Bf16
    why: str

    @property
    def line(self) -> str:
        """The line for the screen."""
        return f"bf16: {self.mode} ({self.why})" + (f"; {_EMULATION}" if self.mode == "emulated" else "")


def has_bf16(device: torch.device) -> bool:
    """Return whether a device has bf16 matrix instructions that torch may use.

    oneDNN reports support on every processor with AVX-512, but without bf16 instructions its bf16 products take twice
    as long as fp32 ones. So the processor must have them, and neither ``ONEDNN_MAX_CPU_ISA`` nor
    ``ATEN_CPU_CAPABILITY`` may limit oneDNN or torch to an older processor.
    """
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not _onednn_supports_bf16():
        return False
    features = torch.cpu.get_capabilities()
    if features.get("architecture") != "x86_64":
        return True  # on Arm, oneDNN checks for the instructions themselves
    vectors = torch.backends.cpu.get_cpu_capability()
    return vectors.startswith("AVX512") and bool(features.get("avx512_bf16") or features.get("amx_bf16"))


def _onednn_supports_bf16() -> bool:
    available: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", ""))
    return available and limit.upper() not in _ISA_WITHOUT_BF16 and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


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
        recorded: the mode of the checkpoint that training resumes from; None for a fresh training.
        device: where it is computed.
        folder: folder of the run, for messages.
        supports: returns whether a device has bf16 instructions.

    Raises:
        UserError: if the checkpoint was trained in the other mode, or with instructions that this device lacks.
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
    """A linear layer without bias, computed in the dtype of its input.

    With ``emulate_bf16``, input and weight must be bf16.
    """

    def __init__(self, inputs: int, outputs: int, *, emulate_bf16: bool) -> None:
        super().__init__(inputs, outputs, bias=False)
        self.emulate_bf16 = emulate_bf16

    def forward(self, states: Tensor) -> Tensor:
        """Map states of shape (..., inputs) to (..., outputs)."""
        if not self.emulate_bf16:
            return F.linear(states, self.weight)
        out: Tensor = _EmulatedProduct.apply(states, self.weight)  # type: ignore[no-untyped-call]
        return out


class _EmulatedProduct(torch.autograd.Function):
    """``states @ weight.T`` of bf16 tensors in fp32, forward and backward; what it saves for the backward is bf16."""

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
