"""What one training process holds in memory at the peak of a step, part by part, from settings alone.

The parts follow the tensors that ``trainer/model.py`` and ``trainer/sharding.py`` keep. Those of the CPU are held to
within 5% of what is counted in a real step by ``tests/trainer/test_rank_memory.py``. ZeRO: arXiv 1910.02054;
activations in the manner of arXiv 2205.05198.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final, Literal

from shards.training import ModelSettings, TrainSettings

PROCESS_BYTES: Final = 400 << 20
"""A process that has imported torch and holds nothing yet."""

MAX_LOGITS: Final = 1 << 26
"""Logits held at once; 2^26 are 256 MB in fp32. Beyond that the model works in pieces, and recomputes them."""

BUCKET_ELEMENTS: Final = 1 << 24
"""Elements per collective at ZeRO 1: 64 MB of fp32 keep the link busy and the extra copy small."""

Device = Literal["cpu", "cuda"]

_FP32: Final = 4

# Per token and entry of the vocabulary, at the peak: log-probabilities, and the gradients of these and of the logits.
_LOGIT_BYTES: Final = 12


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank at the peak of a step.

    Attributes:
        masters: fp32 weights.
        gradients: fp32 gradients, accumulated over micro-batches.
        optimizer: state of the optimizer.
        compute: copies of weights in the dtype of compute.
        activations: what the forward pass keeps for the backward pass.
        working: the largest of what passes in a step: logits, gradients on their way through a collective, casts.
        snapshot: the copy of masters and optimizer that an asynchronous checkpoint is written from; on the host, so it
            is not counted for a GPU.
        process: the interpreter and its libraries.
    """

    masters: int
    gradients: int
    optimizer: int
    compute: int
    activations: int
    working: int
    snapshot: int = 0
    process: int = PROCESS_BYTES

    @property
    def state(self) -> int:
        """What stays from step to step, whatever the micro-batches."""
        return self.masters + self.gradients + self.optimizer + self.compute

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return sum(getattr(self, field.name) for field in fields(self))


def rank_memory(
    model: ModelSettings,
    training: TrainSettings,
    vocabulary: int,
    contexts: Iterable[int],
    ranks: int,
    device: Device = "cpu",
) -> RankMemory:
    """Estimate the peak memory of one of ``ranks`` training processes.

    Args:
        model: shape of the model.
        training: its precision, ZeRO stage and micro-batches.
        vocabulary: size of the tokeniser's vocabulary.
        contexts: context lengths of the schedule's phases, in tokens.
        ranks: number of processes.
        device: whose kernels compute: those of CUDA keep less of norms and of shared keys and values.
    """
    shared, parameters = training.ranks_per_replica(ranks), model.parameters(vocabulary)
    outer = parameters - model.layers * model.block_parameters
    tokens = max(training.rows_per_micro_batch(context) * context for context in contexts)
    activations, working = max(_phases(model, training, vocabulary, tokens, ranks, device), key=sum)
    # Stage 3 keeps whole only what begins and ends the model; the copies of two blocks pass through.
    copies = outer if training.stage == 3 else parameters
    masters, state = _FP32 * -(-parameters // shared), optimizer_bytes(model, training, vocabulary) // shared
    copied = training.asynchronous_checkpoints and device == "cpu"
    return RankMemory(
        masters=masters,
        gradients=_gradient_bytes(training, parameters, shared),
        optimizer=state,
        compute=training.compute_bytes * copies,
        activations=activations,
        working=working,
        # Replicas divide what they write.
        snapshot=(masters + state) * shared // ranks if copied else 0,
    )


def rank_bytes(
    model: ModelSettings, training: TrainSettings, vocabulary: int, contexts: Iterable[int], ranks: int
) -> int:
    """Estimate the peak memory in bytes of one of ``ranks`` processes on CPU; see :func:`rank_memory`."""
    return rank_memory(model, training, vocabulary, contexts, ranks).total


def _gradient_bytes(training: TrainSettings, parameters: int, shared: int) -> int:
    own = 0 if training.stage <= 1 else _FP32 * -(-parameters // shared)
    # Added up whole over micro-batches, or as shares.
    return own + (_FP32 * parameters if training.stage <= 1 or training.reduce_once else 0)


def optimizer_bytes(model: ModelSettings, training: TrainSettings, vocabulary: int) -> int:
    """Return the bytes of the optimizer's state on all ranks together, without factors by row and column."""
    parameters = model.parameters(vocabulary)
    if training.optimizer != "muon":
        return training.optimizer_bytes * parameters
    # All but the matrices of blocks have the two moments of AdamW.
    matrices = model.layers * model.block_matrices
    return training.optimizer_bytes * parameters + 4 * (parameters - matrices)


def _phases(
    model: ModelSettings, training: TrainSettings, vocabulary: int, tokens: int, ranks: int, device: Device
) -> list[tuple[int, int]]:
    """Return (activations, working bytes) where the peak can be: at the logits, in a block's backward, at the end."""
    kept, repeated = activation_bytes(model, training, tokens, device)
    # The last norm, whose input and result are kept in fp32, and the input of the head.
    last = tokens * (2 * _FP32 + training.compute_bytes) * model.width
    parameters, shared = model.parameters(vocabulary), training.ranks_per_replica(ranks)
    outer = parameters - model.layers * model.block_parameters
    return [
        (kept + last, _logits_bytes(model, training, vocabulary, tokens)),
        (kept + repeated, _block_gradient_bytes(model, training, vocabulary, tokens)),
        (0, _reduction_bytes(training, parameters, outer, shared)),
    ]


def activation_bytes(
    model: ModelSettings, training: TrainSettings, tokens: int, device: Device = "cpu"
) -> tuple[int, int]:
    """Return the bytes that all blocks keep of ``tokens`` tokens from the forward for the backward pass.

    Returns:
        What is kept when the forward pass ends, and what is computed again beside it in the backward pass.
    """
    whole = tokens * _block_bytes(model, training, device)
    match training.recompute:
        case "none":
            return model.layers * whole, 0
        case "selective":
            selected = tokens * _selected_bytes(model, training)
            return model.layers * selected, max(0, whole - selected)
        case "blocks":
            # The inputs of all segments; one of them is whole while it is computed again.
            segments = -(-model.layers // training.recompute_every)
            together = min(training.recompute_every, model.layers)
            return segments * tokens * training.compute_bytes * model.width, together * whole


def _block_bytes(model: ModelSettings, training: TrainSettings, device: Device) -> int:
    """Return the bytes that one block keeps of a token."""
    width, compute, query = model.width, training.compute_bytes, model.heads * model.head_width
    if device == "cuda":
        keys = 2 * model.key_value_heads * model.head_width
        norms, attention = 2 * compute * width, compute * (2 * query + keys)
    else:
        # Norms keep their input and what is normalised, in fp32; keys and values are repeated for every head; with
        # several documents in a row, their outputs are kept as well as the whole.
        norms, attention = 4 * _FP32 * width, compute * 5 * query
        if training.may_emulate:
            attention = 4 * _FP32 * query + compute * query
    return norms + attention + _FP32 * model.heads + compute * (2 * width + 4 * model.hidden_width)


def _selected_bytes(model: ModelSettings, training: TrainSettings) -> int:
    """Return the bytes that one block keeps of a token where only results of products and attention are kept."""
    # An emulated product is kept as it is summed, in fp32.
    kept = _FP32 if training.may_emulate else training.compute_bytes
    query, keys = model.heads * model.head_width, 2 * model.key_value_heads * model.head_width
    results = 2 * query + keys + 2 * model.width + 2 * model.hidden_width
    return training.compute_bytes * model.width + kept * results + _FP32 * model.heads


def _logits_bytes(model: ModelSettings, training: TrainSettings, vocabulary: int, tokens: int) -> int:
    """Return the largest of what the head and the loss need, forward or backward."""
    logits, head = min(tokens * vocabulary, MAX_LOGITS), vocabulary * model.width
    product = training.compute_bytes * head
    if training.may_emulate:
        # In fp32: the head's weight, its gradient, and the gradient of the logits.
        product += _FP32 * (2 * head + logits)
    # A z-loss keeps the logits, and has a gradient of its own.
    per_logit = _LOGIT_BYTES + (2 * _FP32 if training.z_loss else 0)
    return max(per_logit * logits, product)


def _block_gradient_bytes(model: ModelSettings, training: TrainSettings, vocabulary: int, tokens: int) -> int:
    """Return what a block's backward pass needs: gradients on their way to be reduced, and at stage 3 copies."""
    compute, block = training.compute_bytes, model.block_parameters
    gathered = compute * block * max(2, training.recompute_every) if training.stage == 3 else 0
    # The gradient of the widest activation; emulated, its product is in fp32.
    flowing = compute * tokens * model.hidden_width
    if training.may_emulate:
        flowing += _FP32 * (tokens + 2 * model.width) * model.hidden_width
    # The head's gradient waits for that of the embedding, because they are reduced together.
    return compute * vocabulary * model.width + (compute + _FP32) * block + gathered + flowing


def _reduction_bytes(training: TrainSettings, parameters: int, outer: int, shared: int) -> int:
    """Return what the last reduction of gradients needs beside the gradients: a copy to send, a share to receive."""
    if training.stage == 1:
        bucket = min(parameters, BUCKET_ELEMENTS)
        return _FP32 * (bucket + -(-bucket // shared))
    return (training.compute_bytes + _FP32) * outer
