"""Rotary position embedding (arXiv 2104.09864) in fp32, half-split as the weights of Llama expect it.

Frequencies belong to a phase of the schedule, not to the model: each phase computes its own, so that a longer context
with another theta, position interpolation or YaRN changes no weight and no buffer of a checkpoint.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shards.schedule import schedule

# Rotations within the original context above which YaRN keeps a frequency, and below which it interpolates it
# (arXiv 2309.00071, section 3.2).
_YARN_BETA_FAST = 32.0
_YARN_BETA_SLOW = 1.0


@dataclass(frozen=True)
class Rope:
    """Inverse frequencies, fp32 of shape (head_width / 2,), and a factor on cosine and sine (YaRN's temperature)."""

    inverse_frequencies: Tensor
    scale: float = 1.0

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return (cosine, sine) at positions (rows, context), fp32 of shape (rows, context, 1, head_width / 2)."""
        angles = positions.to(torch.float32)[..., None] * self.inverse_frequencies.to(positions.device)
        return (angles.cos() * self.scale)[:, :, None], (angles.sin() * self.scale)[:, :, None]


def rope_of(resolved: schedule.Rope, head_width: int) -> Rope:
    """Return the frequencies that a phase of the schedule asks for."""
    match resolved.kind:
        case "none" | "theta":
            return plain_rope(head_width, resolved.theta)
        case "pi":
            return interpolated_rope(head_width, resolved.theta, resolved.factor)
        case "yarn":
            return yarn_rope(head_width, resolved.theta, resolved.factor, resolved.original_context_tokens)


def plain_rope(head_width: int, theta: float) -> Rope:
    """Return the frequencies of the original RoPE, ``theta ** (-2i / head_width)``."""
    exponents = torch.arange(0, head_width, 2, dtype=torch.int64).to(torch.float32) / head_width
    return Rope(1.0 / theta**exponents)


def interpolated_rope(head_width: int, theta: float, factor: float) -> Rope:
    """Return frequencies for positions divided by ``factor`` (position interpolation, arXiv 2306.15595)."""
    return Rope(plain_rope(head_width, theta).inverse_frequencies / factor)


def yarn_rope(head_width: int, theta: float, factor: float, original_context: int) -> Rope:
    """Return the frequencies of YaRN: high ones kept, low ones interpolated, a ramp between (arXiv 2309.00071).

    Args:
        head_width: features of one head.
        theta: base of the frequencies.
        factor: new context length divided by the original one.
        original_context: context length in tokens before the extension.
    """
    kept = plain_rope(head_width, theta).inverse_frequencies
    low = max(math.floor(_rotating_dimension(_YARN_BETA_FAST, head_width, theta, original_context)), 0)
    high = min(math.ceil(_rotating_dimension(_YARN_BETA_SLOW, head_width, theta, original_context)), head_width - 1)
    width = high - low or 0.001
    ramp = ((torch.arange(head_width // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
    frequencies = kept / factor * ramp + kept * (1 - ramp)
    return Rope(frequencies, 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0)


def _rotating_dimension(rotations: float, head_width: int, theta: float, context: int) -> float:
    """Return the (fractional) index of the feature pair that rotates ``rotations`` times within ``context``."""
    return head_width * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(theta))


def rotate(states: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate ``states`` of shape (rows, context, heads, head_width) by :meth:`Rope.tables`; fp32 inside, dtype kept."""
    cosine, sine = tables
    first, second = states.float().chunk(2, dim=-1)
    turned = torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
    return turned.to(states.dtype)
