"""What a training step sends between ranks: collectives and bytes of every ZeRO stage, from settings alone.

Tests hold this to the collectives that a step calls. Stages by arXiv 1910.02054, with gradients in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from shards.rank_memory import BUCKET_ELEMENTS
from shards.training import ModelSettings, TrainSettings

Kind = Literal["all_gather", "reduce_scatter", "all_reduce"]

_FP32: Final = 4
_FLOAT64: Final = 8
_HEADER: Final = 2  # squares of the gradient, and a flag for signals

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Traffic:
    """Collectives of one kind in a step.

    Attributes:
        calls: how many there are.
        size: bytes of the whole tensors that are gathered or reduced, all calls together.
    """

    calls: int
    size: int

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.calls + other.calls, self.size + other.size)


def step_traffic(
    model: ModelSettings, training: TrainSettings, vocabulary: int, ranks: int, micro_batches: int, domains: int
) -> dict[Kind, Traffic]:
    """Return the collectives of one step on each rank.

    Args:
        model: shape of the model.
        training: its stage, precision and replicas; AdamW, SGD and Lion need nothing beyond this.
        vocabulary: size of the tokeniser's vocabulary.
        ranks: number of processes, more than one.
        micro_batches: micro-batches of each rank in the step.
        domains: domains by which losses are told.
    """
    shared, units = training.ranks_per_replica(ranks), units_of(model, vocabulary)
    elements = [sum(padded(shape, shared) for shape in unit) for unit in units]
    whole, outer = sum(elements), elements[-1]
    # Replicas add up their shares of the gradient.
    replicated = Traffic(len(units), _FP32 * whole // shared) if ranks > shared else Traffic(0, 0)
    told = Traffic(1, _FLOAT64 * (_HEADER + 2 * domains))
    nothing = Traffic(0, 0)
    match training.stage:
        case 0:
            return {"all_gather": nothing, "reduce_scatter": nothing, "all_reduce": told + replicated}
        case 1:
            calls = buckets(model, vocabulary)
            replicated = Traffic(calls, _FP32 * whole // shared) if ranks > shared else nothing
            gathered = Traffic(calls, training.compute_bytes * whole)
            return {
                "all_gather": gathered,
                "reduce_scatter": Traffic(calls, _FP32 * whole),
                "all_reduce": told + replicated,
            }
    times = 1 if training.reduce_once else micro_batches
    gathers = Traffic(len(units), training.compute_bytes * whole)
    if training.stage == 3:
        # Blocks are gathered again for the backward pass; what begins and ends the model is kept in between.
        gathers += Traffic(model.layers, training.compute_bytes * (whole - outer))
    return {
        "all_gather": Traffic(times * gathers.calls, times * gathers.size),
        "reduce_scatter": Traffic(times * len(units), times * _FP32 * whole),
        "all_reduce": told + Traffic(times * replicated.calls, times * replicated.size),
    }


def sent_bytes(traffic: dict[Kind, Traffic], ranks: int) -> float:
    """Return the bytes that each rank sends, by ring algorithms: an all-reduce passes everything twice."""
    passes = {"all_gather": 1, "reduce_scatter": 1, "all_reduce": 2}
    return sum(passes[kind] * one.size for kind, one in traffic.items()) * (ranks - 1) / ranks


def units_of(model: ModelSettings, vocabulary: int) -> list[list[Shape]]:
    """Return the shapes of what is gathered and reduced together: each block, then what begins and ends the model."""
    width, hidden = model.width, model.hidden_width
    query, keys = model.heads * model.head_width, model.key_value_heads * model.head_width
    heads: list[Shape] = [(model.head_width,)] * (2 if model.qk_norm else 0)
    block: list[Shape] = [
        (width,),
        (query, width),
        (keys, width),
        (keys, width),
        (width, query),
        *heads,
        (width,),
        (hidden, width),
        (hidden, width),
        (width, hidden),
    ]
    outer: list[Shape] = [(vocabulary, width), (width,), *([] if model.tie_embeddings else [(vocabulary, width)])]
    return [*([block] * model.layers), outer]


def padded(shape: Shape, ranks: int) -> int:
    """Return the elements of a parameter whose rows are divided among ranks equally, with padding on the last."""
    return -(-shape[0] // ranks) * ranks * math.prod(shape[1:])


def buckets(model: ModelSettings, vocabulary: int) -> int:
    """Return the collectives into which stage 1 divides all parameters."""
    count = filled = 0
    for size in _in_order(model, vocabulary):
        filled += size
        if filled >= BUCKET_ELEMENTS:
            count, filled = count + 1, 0
    return count + (filled > 0)


def _in_order(model: ModelSettings, vocabulary: int) -> Iterator[int]:
    """Yield the sizes of parameters as the model names them: the embedding, the blocks, the rest."""
    *blocks, outer = units_of(model, vocabulary)
    yield math.prod(outer[0])
    for block in blocks:
        yield from map(math.prod, block)
    yield from map(math.prod, outer[1:])
