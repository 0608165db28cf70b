"""Strict settings of the model and its training, as written in a recipe; needs no torch.

They live in ``shards`` and not in ``trainer`` because a misspelt training key must fail before any data is read, and
the pipelines, which read the recipe first, never import the trainer.
"""

from __future__ import annotations

import difflib
from typing import Any, Literal, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from shards.errors import UserError

S = TypeVar("S", bound=BaseModel)

Bf16 = Literal["native", "emulated"]
"""How bf16 products are computed: by the processor's own instructions, or through fp32."""

Bf16Setting = Literal["auto", "native", "emulated"]

_FFN_MULTIPLE = 64

DEFAULT_MICRO_BATCH_TOKENS = 8_192
"""Row slots of a micro-batch when a recipe gives neither tokens nor rows."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSettings(_Strict):
    """Shape of a Llama-style decoder. The vocabulary comes from the tokeniser, RoPE from the schedule."""

    layers: int = Field(default=4, ge=1)
    width: int = Field(default=192, ge=2, description="features of a token between blocks")
    heads: int = Field(default=4, ge=1, description="query heads")
    kv_heads: int | None = Field(default=None, ge=1, description="key and value heads; as many as heads by default")
    ffn_width: int | None = Field(default=None, ge=1, description="SwiGLU width; 8/3 of width, rounded up, by default")
    tie_embeddings: bool = False
    norm_epsilon: float = Field(default=1e-5, gt=0.0)
    # 0.02 as in GPT-2: the logits of an untrained model are near zero, so its loss is near ln(vocabulary).
    init_std: float = Field(default=0.02, gt=0.0)

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

    def parameters(self, vocabulary: int) -> int:
        """Return the number of trained parameters."""
        attention = 2 * self.width * self.head_width * (self.heads + self.key_value_heads)
        block = attention + 3 * self.width * self.hidden_width + 2 * self.width
        return self.layers * block + self.width + vocabulary * self.width * (1 if self.tie_embeddings else 2)


class TrainSettings(_Strict):
    """How the model is trained. What changes with progress (learning rate, context, mixture) is in the schedule.

    ``micro_batch_tokens`` (or ``micro_batch_rows``) never depends on the number of ranks, so neither do the gradients.
    """

    seed: int = Field(default=0, ge=0, lt=1 << 63)
    zero: Literal[0, 1, 2, 3] = Field(default=3, description="ZeRO stage: what is sharded over the ranks")
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
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    epsilon: float = Field(default=1e-8, gt=0.0)
    weight_decay: float = Field(default=0.1, ge=0.0, description="on matrices, not on norms or embeddings")
    clip_norm: float = Field(default=1.0, gt=0.0, description="largest global norm of the gradient")
    checkpoint_every_steps: int = Field(default=500, ge=1)
    keep_checkpoints: int = Field(default=3, ge=1)
    evaluate_every_steps: int = Field(default=0, ge=0, description="in addition to the ends of phases; 0 for none")
    evaluate_tokens: int = Field(default=65_536, ge=0, description="held-out tokens per domain at most; 0 for none")

    @pydantic.model_validator(mode="after")
    def _one_size(self) -> TrainSettings:
        if self.micro_batch_tokens is not None and self.micro_batch_rows is not None:
            raise ValueError("give micro_batch_tokens or micro_batch_rows, not both")
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

    def bytes_per_parameter(self, ranks: int) -> float:
        """Return the bytes per parameter on each rank at the peak of a step, without activations.

        fp32 master, fp32 gradient and two fp32 moments (Adam), each whole or divided by ``ranks``, and the copy for
        compute where a whole one is kept through the step (ZeRO, arXiv 1910.02054, with fp32 gradients).
        """
        compute = 2 if self.precision == "bf16" else 4
        match self.zero:
            case 0:
                return compute + 16.0
            case 1:
                return compute + 4 + 12 / ranks
            case 2:
                return compute + 16 / ranks
            case _:
                return 16 / ranks


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
