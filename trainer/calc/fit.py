"""What to turn on, and in which order, for a model to fit on given machines: the cheapest measure first.

The order follows what a measure costs. ZeRO 1 sends what an all-reduce sends (arXiv 1910.02054). ZeRO 2 reduces every
micro-batch instead of once a step. Selective recomputation repeats norms and activation functions, a few percent of the
arithmetic (arXiv 2205.05198). ZeRO 3 gathers weights twice a micro-batch. Recomputing whole blocks repeats the forward
pass, a third more arithmetic (arXiv 1604.06174). A smaller micro-batch feeds the processor worst, so it comes last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from shards.rank_memory import Device, RankMemory, rank_memory
from shards.training import ModelSettings, TrainSettings

USABLE_SHARE: Final = 0.92
"""What fragmentation and the communication library leave of a GPU's memory, as a rule of thumb."""

LADDER: Final[tuple[tuple[str, dict[str, Any], str], ...]] = (
    ("zero = 0", {"zero": 0}, "the state is whole on every rank; one all-reduce a step"),
    ("zero = 1", {"zero": 1}, "divides the optimizer's state; sends as much as the all-reduce"),
    ("zero = 2", {"zero": 2}, "divides gradients too; reduces every micro-batch instead of once a step"),
    ('recompute = "selective"', {"recompute": "selective"}, "repeats norms, rotations and activation functions only"),
    ("zero = 3", {"zero": 3}, "divides the weights too; gathers them twice a micro-batch"),
    ('recompute = "blocks"', {"recompute": "blocks"}, "repeats the forward pass: a third more arithmetic"),
    ("micro_batch_rows = 1", {"micro_batch_rows": 1, "micro_batch_tokens": None}, "keeps one row; smaller products"),
)


@dataclass(frozen=True)
class Rung:
    """One measure on top of those before it.

    Attributes:
        measure: the setting, as in a recipe.
        why: what it does and what it costs.
        memory: bytes of one rank with it.
        fits: True if they are within what is usable.
    """

    measure: str
    why: str
    memory: RankMemory
    fits: bool


def ladder(
    model: ModelSettings,
    training: TrainSettings,
    vocabulary: int,
    context_tokens: int,
    ranks: int,
    usable_bytes: float,
    device: Device = "cuda",
) -> list[Rung]:
    """Return the measures in order, up to the first with which the model fits, or all of them if none is enough."""
    found: list[Rung] = []
    settings = training.model_dump()
    for measure, change, why in LADDER:
        settings |= change
        now = TrainSettings.model_validate(settings)
        if "micro_batch_rows" in change and training.rows_per_micro_batch(context_tokens) == 1:
            continue  # it is one row already
        memory = rank_memory(model, now, vocabulary, [context_tokens], ranks, device)
        found.append(Rung(measure, why, memory, memory.total <= usable_bytes))
        if found[-1].fits:
            break
    return found


def fewest_ranks(
    model: ModelSettings, training: TrainSettings, vocabulary: int, context_tokens: int, usable_bytes: float
) -> int | None:
    """Return the fewest ranks, a power of two, on which all measures together suffice; None if no number does."""
    settings = training.model_dump()
    for _, change, _ in LADDER:
        settings |= change
    last = TrainSettings.model_validate(settings)
    for exponent in range(16):
        ranks = 1 << exponent
        if rank_memory(model, last, vocabulary, [context_tokens], ranks, "cuda").total <= usable_bytes:
            return ranks
    return None
