"""Days and price of a training, and the FLOPs behind them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from trainer.calc.chinchilla import FLOPS_PER_PARAMETER_TOKEN

if TYPE_CHECKING:
    from shards.training import ModelSettings

_SECONDS_PER_DAY: Final = 86_400

PEAK_FLOPS: Final = MappingProxyType({"a100": 312e12, "h100": 989e12, "h200": 989e12, "b200": 2_250e12})
"""Dense bf16 FLOPs a second of one GPU, by the vendor's data sheets."""


@dataclass(frozen=True)
class Cost:
    """What a training costs.

    Attributes:
        flops: of the model, without what is computed again.
        gpu_hours: over all GPUs.
        days: from start to end, without interruptions.
        price: in the currency of the hourly price.
    """

    flops: float
    gpu_hours: float
    days: float
    price: float


def cost(flops: float, gpus: int, peak_flops: float, mfu: float, price_per_gpu_hour: float) -> Cost:
    """Return the cost of ``flops`` on ``gpus`` GPUs that reach ``mfu`` of their peak (arXiv 2204.02311, appendix B)."""
    seconds = flops / (gpus * peak_flops * mfu)
    hours = gpus * seconds / 3600
    return Cost(flops, hours, seconds / _SECONDS_PER_DAY, hours * price_per_gpu_hour)


def flops_per_token(model: ModelSettings, vocabulary: int, context_tokens: int) -> float:
    """Return the FLOPs that training does per token: six per parameter that multiplies, and those of attention.

    The embedding only looks up. Attention is counted over the whole context, causal or not, as arXiv 2204.02311 does,
    so that MFUs can be compared: 12 FLOPs per layer, feature and token of context.
    """
    embedding = 0 if model.tie_embeddings else vocabulary * model.width
    products = model.parameters(vocabulary) - embedding
    attention = 12 * model.layers * model.heads * model.head_width * context_tokens
    return FLOPS_PER_PARAMETER_TOKEN * products + attention
