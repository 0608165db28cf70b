"""Strict settings of the model and its training, as written in a recipe; needs no torch.

They live in ``shards`` and not in ``trainer`` because a misspelt training key must fail before any data is read, and
the pipelines, which read the recipe first, never import the trainer.
"""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from shards.errors import UserError
from shards.presets import preset

S = TypeVar("S", bound=BaseModel)

Bf16 = Literal["native", "emulated"]
"""How bf16 products are computed: by the processor's own instructions, or through fp32."""

Bf16Setting = Literal["auto", "native", "emulated"]

OptimizerKind = Literal["adamw", "muon", "adafactor", "sgd", "lion", "sm3"]

_STATE_BYTES: Final = {"adamw": 8, "muon": 4, "adafactor": 0, "sgd": 4, "lion": 4, "sm3": 4}
_MOMENTUM: Final = {"muon": 0.95, "sgd": 0.9, "sm3": 0.9}

Recompute = Literal["none", "selective", "blocks"]
"""What the backward pass computes again instead of keeping it (activation checkpointing)."""

_FFN_MULTIPLE = 64

DEFAULT_MICRO_BATCH_TOKENS = 8_192
"""Row slots of a micro-batch when a recipe gives neither tokens nor rows."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Strict):
    """Shape of a Llama-style decoder. The vocabulary comes from the tokeniser, RoPE from the schedule.

    ``preset`` names a shape of ``shards.presets``; other keys override its values.
    """

    layers: int = Field(default=4, ge=1)
    width: int = Field(default=192, ge=2, description="features of a token between blocks")
    heads: int = Field(default=4, ge=1, description="query heads")
    kv_heads: int | None = Field(default=None, ge=1, description="key and value heads; as many as heads by default")
    ffn_width: int | None = Field(default=None, ge=1, description="SwiGLU width; 8/3 of width, rounded up, by default")
    tie_embeddings: bool = False
    qk_norm: bool = Field(default=False, description="normalise queries and keys of each head (arXiv 2010.04245)")
    depth_init: bool = Field(
        default=False, description="scale what writes to the residual stream by its own depth, not by that of the model"
    )
    norm_epsilon: float = Field(default=1e-5, gt=0.0)
    # 0.02 as in GPT-2: the logits of an untrained model are near zero, so its loss is near ln(vocabulary).
    init_std: float = Field(default=0.02, gt=0.0)

    @pydantic.model_validator(mode="before")
    @classmethod
    def _from_preset(cls, table: Any) -> Any:
        if isinstance(table, dict) and isinstance(name := table.get("preset"), str):
            try:
                shape = preset(name)
            except UserError as error:
                # pydantic keeps only the text of what a validator raises.
                raise ValueError(f"{error.what}. {error.remedy}") from None
            return shape | {key: value for key, value in table.items() if key != "preset"}
        return table

    @pydantic.model_validator(mode="after")
    def _heads_divide(self) -> ModelSettings:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(f"width {self.width} must be an even multiple of heads {self.heads}")
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads {self.heads} must be a multiple of kv_heads {self.key_value_heads}")
        return self

    @property
    def head_width(self) -> int:
        """Features of one head."""
        return self.width // self.heads

    @property
    def key_value_heads(self) -> int:
        """Key and value heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def hidden_width(self) -> int:
        """Width of the SwiGLU layer."""
        if self.ffn_width is not None:
            return self.ffn_width
        return -(-8 * self.width // (3 * _FFN_MULTIPLE)) * _FFN_MULTIPLE

    @property
    def block_matrices(self) -> int:
        """Number of trained parameters in the matrices of one block."""
        attention = 2 * self.width * self.head_width * (self.heads + self.key_value_heads)
        return attention + 3 * self.width * self.hidden_width

    @property
    def block_parameters(self) -> int:
        """Number of trained parameters of one block."""
        return self.block_matrices + 2 * self.width + (2 * self.head_width if self.qk_norm else 0)

    def parameters(self, vocabulary: int) -> int:
        """Return the number of trained parameters."""
        outer = self.width + vocabulary * self.width * (1 if self.tie_embeddings else 2)
        return self.layers * self.block_parameters + outer


class TrainSettings(_Strict):
    """How the model is trained. What changes with progress (learning rate, context, mixture) is in the schedule.

    ``micro_batch_tokens`` (or ``micro_batch_rows``) never depends on the number of ranks, so neither do the gradients.
    """

    seed: int = Field(default=0, ge=0, lt=1 << 63)
    zero: Literal[0, 1, 2, 3, "auto"] = Field(
        default=3, description="ZeRO stage: what is sharded over the ranks; auto for the smallest that fits in memory"
    )
    shard_ranks: int | None = Field(
        default=None,
        ge=1,
        description="ranks that share the state at ZeRO 1 to 3, all by default; groups of them are replicas (HSDP)",
    )
    reduce_once: bool = Field(
        default=False, description="at ZeRO 2, add up micro-batches whole on each rank and reduce once a step"
    )
    precision: Literal["bf16", "fp32"] = Field(default="bf16", description="of compute; masters are always fp32")
    bf16: Bf16Setting = Field(
        default="auto", description="native where the processor has bf16 instructions, else emulated through fp32"
    )
    micro_batch_tokens: int | None = Field(
        default=None, ge=1, description="row slots of one forward pass, 8,192 by default; at least one row"
    )
    micro_batch_rows: int | None = Field(default=None, ge=1, description="a fixed number of rows instead of tokens")
    window_shards: int | None = Field(
        default=None, ge=1, description="shards of a domain whose documents are shuffled together; 128 by default"
    )
    steps_ahead: int = Field(
        default=2, ge=0, le=64, description="steps that are read while the model computes; 0 for none"
    )
    attention: Literal["auto", "documents", "dense", "flex"] = "auto"
    recompute: Recompute = Field(
        default="none", description="activation checkpointing: all but matrix products and attention, or whole blocks"
    )
    recompute_every: int = Field(
        default=1, ge=1, description="with blocks: how many are recomputed together; near sqrt(layers) keeps least"
    )
    optimizer: OptimizerKind = Field(default="adamw", description="muon is for the matrices of blocks, beside AdamW")
    momentum: float | None = Field(
        default=None, ge=0.0, lt=1.0, description="of muon (0.95 by default), sgd and sm3 (0.9)"
    )
    ema_decay: float | None = Field(
        default=None, gt=0.0, lt=1.0, description="average of the weights, exported instead of the last ones"
    )
    z_loss: float = Field(default=0.0, ge=0.0, description="weight of log^2 of the softmax's normaliser; 1e-4 in PaLM")
    no_decay: tuple[str, ...] = Field(
        default=("*norm*", "embedding*"), description="names of parameters without weight decay, with * and ?"
    )
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    epsilon: float = Field(default=1e-8, gt=0.0)
    weight_decay: float = Field(default=0.1, ge=0.0, description="on all parameters but those of no_decay")
    clip_norm: float = Field(default=1.0, gt=0.0, description="largest global norm of the gradient")
    checkpoint_every_steps: int = Field(default=500, ge=1)
    keep_checkpoints: int = Field(default=3, ge=1)
    keep_every_steps: int | None = Field(default=None, ge=1, description="also keep every checkpoint at such a step")
    asynchronous_checkpoints: bool = Field(
        default=True, description="copy the state and write it while training goes on; else stop to write"
    )
    peak_flops: float | None = Field(
        default=None, gt=0.0, description="peak FLOPs a second of one rank's device, against which MFU is told"
    )
    on_spike: Literal["stop", "skip", "lower_rate"] = Field(
        default="stop",
        description="a spike that lasts: go back and skip its batches, or lower the rate by 10%; stop heals none",
    )
    spike_score: float = Field(default=8.0, gt=0.0, description="robust z-score of the loss that makes a spike")
    spike_steps: int = Field(default=5, ge=1, description="steps in a row that make a spike one to heal")
    spike_rollback_steps: int = Field(default=100, ge=1, description="how far to go back, to the checkpoint before")
    max_spikes: int = Field(default=5, ge=0, description="spikes that are healed before training stops")
    evaluate_every_steps: int = Field(default=0, ge=0, description="in addition to the ends of phases; 0 for none")
    evaluate_tokens: int = Field(default=65_536, ge=0, description="held-out tokens per domain at most; 0 for none")

    @pydantic.model_validator(mode="after")
    def _one_size(self) -> TrainSettings:
        if self.micro_batch_tokens is not None and self.micro_batch_rows is not None:
            raise ValueError("give micro_batch_tokens or micro_batch_rows, not both")
        return self

    @pydantic.model_validator(mode="after")
    def _reduces_once_at_stage_2(self) -> TrainSettings:
        if self.reduce_once and self.zero != 2:
            raise ValueError("reduce_once has an effect only with zero = 2")
        return self

    @pydantic.model_validator(mode="after")
    def _recomputes_blocks_together(self) -> TrainSettings:
        if self.recompute_every > 1 and self.recompute != "blocks":
            raise ValueError(f'recompute_every = {self.recompute_every} has an effect only with recompute = "blocks"')
        return self

    @pydantic.field_validator("bf16")
    @classmethod
    def _has_an_effect(cls, setting: Bf16Setting, info: pydantic.ValidationInfo) -> Bf16Setting:
        if setting != "auto" and info.data.get("precision") == "fp32":
            raise ValueError('it has no effect with precision = "fp32": leave it out, or set precision = "bf16"')
        return setting

    def rows_per_micro_batch(self, context_tokens: int) -> int:
        """Return the rows of one micro-batch at a context length."""
        tokens = self.micro_batch_tokens or DEFAULT_MICRO_BATCH_TOKENS
        return self.micro_batch_rows or max(1, tokens // context_tokens)

    @property
    def stage(self) -> int:
        """The ZeRO stage; as long as it is not chosen (``auto``), the one that needs least memory."""
        return 3 if self.zero == "auto" else self.zero

    @property
    def compute_bytes(self) -> int:
        """Bytes of a number in the dtype of compute."""
        return 2 if self.precision == "bf16" else 4

    @property
    def may_emulate(self) -> bool:
        """True if bf16 may be emulated, which only the processor decides."""
        return self.precision == "bf16" and self.bf16 != "native"

    def decays(self, name: str) -> bool:
        """Return whether weight decay applies to a parameter."""
        return not any(fnmatchcase(name, pattern) for pattern in self.no_decay)

    def momentum_of(self, optimizer: str) -> float:
        """Return the momentum of an optimizer that has one."""
        return _MOMENTUM[optimizer] if self.momentum is None else self.momentum

    @property
    def optimizer_bytes(self) -> int:
        """Bytes per parameter of a matrix in a block that the optimizer keeps, without factors by row and column.

        Two fp32 moments, or one; an average of the weights is another.
        """
        return _STATE_BYTES[self.optimizer] + (4 if self.ema_decay is not None else 0)

    def ranks_per_replica(self, ranks: int) -> int:
        """Return how many of ``ranks`` ranks divide one copy of the state among them."""
        return 1 if self.stage == 0 else self.shard_ranks or ranks

    def bytes_per_parameter(self, ranks: int) -> float:
        """Return the bytes per parameter on each rank at the peak of a step, without activations.

        fp32 master, fp32 gradient and the optimizer's state (two fp32 moments for Adam), each whole or divided by
        ``ranks``, and the copy for compute where a whole one is kept through the step (ZeRO, arXiv 1910.02054, with
        fp32 gradients).
        """
        compute, shared, kept = self.compute_bytes, self.ranks_per_replica(ranks), 4 + self.optimizer_bytes
        match self.stage:
            case 0:
                return compute + 4.0 + kept
            case 1:
                return compute + 4 + kept / shared
            case 2:
                return compute + (4 + kept) / shared + (4 if self.reduce_once else 0)
            case _:
                return (4 + kept) / shared


def parse_settings(kind: type[S], table: Any, place: str) -> S:
    """Check a table of settings.

    Raises:
        UserError: naming the first key that is wrong, and for an unknown key the nearest valid one.
    """
    try:
        return kind.model_validate(table)
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, kind.model_fields, n=1, cutoff=0.0)[0]
            raise UserError(f"unknown key {key!r}", place=place, remedy=f"Did you mean {near!r}?") from error
        what = f"{first['msg']} (found {first['input']!r})" if key else first["msg"]
        raise UserError(what, place=f"{place}, key {key}" if key else place) from error
