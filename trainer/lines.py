"""What the log and the screen say of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from shards.schedule.schedule import Point
from shards.training import ModelSettings
from trainer.batch import StepPlan
from trainer.calc.cost import flops_per_token
from trainer.engine import Update
from trainer.micro_batch import Losses, mean_loss

# The loss of an untrained model is near ln(vocabulary). One further away than this, in nats, has a cause worth finding.
_FIRST_LOSS_TOLERANCE: Final = 0.5


def train_line(point: Point, plan: StepPlan, losses: Losses, update: Update) -> dict[str, Any]:
    """Return the line of the log of a step."""
    return {
        "kind": "train",
        "step": point.step + 1,
        "tokens": point.tokens + point.batch_tokens,
        "phase": point.name,
        "context_tokens": point.context_tokens,
        "learning_rate": point.learning_rate,
        "loss": mean_loss(losses),
        "gradient_norm": update.norm,
        "padding": plan.padding,
        "cut_documents": plan.cut_documents,
        "domains": table(losses),
    }


def timing_line(step: int, seconds: float, speed: float, utilisation: float | None) -> dict[str, Any]:
    """Return the line of the timings of a step; with its MFU where the peak is known."""
    line = {"step": step, "seconds": round(seconds, 6), "tokens_per_second": round(speed, 1)}
    return line if utilisation is None else line | {"mfu": round(utilisation, 6)}


def model_flops_utilisation(
    model: ModelSettings, vocabulary: int, context_tokens: int, tokens_per_second: float, peak_flops: float, ranks: int
) -> float:
    """Return the share of the peak of all ranks that the model's own FLOPs make up (arXiv 2204.02311, appendix B)."""
    return flops_per_token(model, vocabulary, context_tokens) * tokens_per_second / (peak_flops * ranks)


def skipped_line(point: Point) -> dict[str, Any]:
    """Return the line of the log of a step whose batch was skipped."""
    tokens = point.tokens + point.batch_tokens
    return {"kind": "skipped", "step": point.step + 1, "tokens": tokens, "phase": point.name}


def table(losses: Losses) -> Mapping[str, Mapping[str, float | int]]:
    """Return losses by domain as plain values."""
    return {domain: {"loss": loss, "targets": targets} for domain, (loss, targets) in losses.items()}


def first_loss_note(loss: float, vocabulary: int) -> str:
    """Return what there is to say of the loss of the first step."""
    expected = math.log(vocabulary)
    if abs(loss - expected) <= _FIRST_LOSS_TOLERANCE:
        return f"first loss {loss:.4f}, near ln(vocabulary) = {expected:.4f}, as expected of an untrained model"
    return (
        f"warning: first loss {loss:.4f} is far from ln(vocabulary) = {expected:.4f}: "
        "check model.init_std, and whether the tokens of the shards come from this vocabulary"
    )
