"""A small Llama-style decoder: RMSNorm, rotary positions, SwiGLU, no attention between packed documents.

Its weights map one to one to ``LlamaForCausalLM`` of transformers (``trainer/export.py``), which is the tests' oracle.
"""

from __future__ import annotations

import hashlib
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from shards.rank_memory import MAX_LOGITS
from shards.training import ModelSettings
from trainer.attention import Layout, attend
from trainer.batch import IGNORE
from trainer.bf16 import Linear
from trainer.recompute import Recomputation
from trainer.rope import Rope, rotate


class Norm(nn.Module):
    """Root mean square normalisation (arXiv 1910.07467) over the last axis, accumulated in fp32."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, states: Tensor) -> Tensor:
        """Normalise states of shape (..., width)."""
        return F.rms_norm(states, self.weight.shape, self.weight, self.epsilon)


class Attention(nn.Module):
    """Multi-head attention, with fewer key and value heads if the settings say so."""

    def __init__(self, settings: ModelSettings, *, emulate_bf16: bool) -> None:
        super().__init__()
        self.head_width, self.emulate_bf16 = settings.head_width, emulate_bf16
        queries, keys = settings.heads * settings.head_width, settings.key_value_heads * settings.head_width
        self.query = Linear(settings.width, queries, emulate_bf16=emulate_bf16)
        self.key = Linear(settings.width, keys, emulate_bf16=emulate_bf16)
        self.value = Linear(settings.width, keys, emulate_bf16=emulate_bf16)
        self.output = Linear(queries, settings.width, emulate_bf16=emulate_bf16)
        if settings.qk_norm:
            self.query_norm = Norm(settings.head_width, settings.norm_epsilon)
            self.key_norm = Norm(settings.head_width, settings.norm_epsilon)
        self.qk_norm = settings.qk_norm

    def forward(self, states: Tensor, tables: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        """Attend; states and result have shape (rows, context, width)."""
        query, key, value = self.heads_of(states)
        mixed = attend(rotate(query, tables), rotate(key, tables), value, layout, emulate_bf16=self.emulate_bf16)
        out: Tensor = self.output(mixed.flatten(-2))
        return out

    def heads_of(self, states: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value of each token, of shape (rows, context, heads, head_width), not rotated yet."""
        query, key, value = (
            project(states).unflatten(-1, (-1, self.head_width)) for project in (self.query, self.key, self.value)
        )
        if self.qk_norm:
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value


class FeedForward(nn.Module):
    """SwiGLU (arXiv 2002.05202)."""

    def __init__(self, settings: ModelSettings, *, emulate_bf16: bool) -> None:
        super().__init__()
        self.gate = Linear(settings.width, settings.hidden_width, emulate_bf16=emulate_bf16)
        self.up = Linear(settings.width, settings.hidden_width, emulate_bf16=emulate_bf16)
        self.down = Linear(settings.hidden_width, settings.width, emulate_bf16=emulate_bf16)

    def forward(self, states: Tensor) -> Tensor:
        """Transform each token; states and result have shape (rows, context, width)."""
        out: Tensor = self.down(F.silu(self.gate(states)) * self.up(states))
        return out


class Block(nn.Module):
    """One decoder layer, with normalisation before each half."""

    def __init__(self, settings: ModelSettings, recomputation: Recomputation, *, emulate_bf16: bool) -> None:
        super().__init__()
        self._recomputation = recomputation
        self.attention_norm = Norm(settings.width, settings.norm_epsilon)
        self.attention = Attention(settings, emulate_bf16=emulate_bf16)
        self.feed_forward_norm = Norm(settings.width, settings.norm_epsilon)
        self.feed_forward = FeedForward(settings, emulate_bf16=emulate_bf16)

    def forward(self, states: Tensor, tables: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        """Apply the layer; states and result have shape (rows, context, width)."""
        return self._recomputation.block(self._apply_layer, states, tables, layout)

    def _apply_layer(self, states: Tensor, tables: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        states = states + self.attention(self.attention_norm(states), tables, layout)
        out: Tensor = states + self.feed_forward(self.feed_forward_norm(states))
        return out


class Decoder(nn.Module):
    """The whole model. What changes with the schedule's phases is an argument of its forward, so it holds no state.

    With ``emulate_bf16``, every product of bf16 tensors is computed in fp32 (``trainer.bf16``). ``recomputation`` says
    what the backward pass computes again; nothing by default. ``z_loss`` draws the softmax's normaliser towards 1
    (arXiv 2204.02311, section 5): it is part of the gradient, not of the losses that are told.
    """

    def __init__(
        self,
        settings: ModelSettings,
        vocabulary: int,
        *,
        emulate_bf16: bool = False,
        recomputation: Recomputation | None = None,
        z_loss: float = 0.0,
    ) -> None:
        super().__init__()
        self._z_loss = z_loss
        self.settings, self.vocabulary = settings, vocabulary
        self.embedding = nn.Embedding(vocabulary, settings.width)
        self._again = again = recomputation or Recomputation()
        self.blocks = nn.ModuleList(Block(settings, again, emulate_bf16=emulate_bf16) for _ in range(settings.layers))
        self.norm = Norm(settings.width, settings.norm_epsilon)
        self.head = Linear(settings.width, vocabulary, emulate_bf16=emulate_bf16)
        if settings.tie_embeddings:
            self.head.weight = self.embedding.weight

    def forward(
        self, tokens: Tensor, positions: Tensor, layout: Layout, rope: Rope, targets: Tensor | None = None
    ) -> Tensor:
        """Compute logits, or losses if ``targets`` are given.

        Args:
            tokens: int64 of shape (rows, context).
            positions: integers of shape (rows, context), from 0 in each document.
            layout: the documents of the rows.
            rope: frequencies of the current phase.
            targets: int64 of shape (rows, context); ``IGNORE`` where nothing is to be predicted.

        Returns:
            Without targets, logits of shape (rows, context, vocabulary) in compute dtype. With targets, losses
            in nats, fp32 of shape (rows, context), 0 where ignored.
        """
        states, tables = self.embedding(tokens), rope.tables(positions)
        states = self.norm(self._again.segments(list(self.blocks), states, tables, layout))
        if targets is None:
            logits: Tensor = self.head(states)
            return logits
        # A copy, not a view: FSDP attaches its backward hook to what the root returns.
        return self._losses(states.flatten(0, 1), targets.flatten()).view_as(targets).clone()

    def _losses(self, states: Tensor, targets: Tensor) -> Tensor:
        piece = max(1, MAX_LOGITS // self.vocabulary)
        if len(targets) <= piece:
            return self._piece_losses(states, targets)
        pieces = zip(torch.split(states, piece), torch.split(targets, piece), strict=True)
        return torch.cat([checkpoint(self._piece_losses, s, t, use_reentrant=False) for s, t in pieces])

    def _piece_losses(self, states: Tensor, targets: Tensor) -> Tensor:
        logits = self.head(states).float()
        losses = F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none")
        if self._z_loss and torch.is_grad_enabled():
            penalty = self._z_loss * torch.where(targets == IGNORE, 0.0, logits.logsumexp(-1).square())
            losses = losses + (penalty - penalty.detach())
        return losses


def initial_weight(name: str, shape: torch.Size, settings: ModelSettings, seed: int) -> Tensor:
    """Return the initial value of a parameter, in fp32: a function of name and seed, so it is the same on any ranks.

    Norms start at one, everything else is drawn from a normal distribution; as in GPT-2, matrices that write to the
    residual stream are scaled down by the number of additions to it: in the whole model, or with ``depth_init`` up to
    their own block.
    """
    if len(shape) == 1:
        return torch.ones(shape)
    std = settings.init_std
    if name.endswith(("attention.output.weight", "feed_forward.down.weight")):
        blocks = int(name.split(".")[1]) + 1 if settings.depth_init else settings.layers
        std /= math.sqrt(2 * blocks)
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little", signed=True))
    return torch.empty(shape).normal_(0.0, std, generator=generator)
