"""Text from a trained model: token after token, with the keys and values of earlier ones kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from shards.errors import UserError
from trainer.config import Job
from trainer.export import transformers_name
from trainer.model import Block, Decoder
from trainer.rope import Rope, rope_of, rotate

_LENGTH_BYTES: Final = 8


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: what logits are divided by; 0 takes the most likely token.
        top_p: the fewest tokens that together are at least this likely are left to choose from (arXiv 1904.09751).
        seed: of the generator.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0


class Cache:
    """Keys and values of the tokens so far, for each block, with room for ``context`` tokens."""

    def __init__(self, model: Decoder, context: int) -> None:
        settings, weight = model.settings, model.embedding.weight
        shape = 1, context, settings.key_value_heads, settings.head_width
        self.length, self.context = 0, context
        self._kept = [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(settings.layers)]

    def add(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add keys and values of new tokens, of shape (1, tokens, kv_heads, head_width), and return all so far."""
        begin, end = self.length, self.length + key.shape[1]
        keys, values = self._kept[layer]
        keys[:, begin:end], values[:, begin:end] = key, value
        return keys[:, :end], values[:, :end]


@torch.no_grad()
def next_logits(model: Decoder, rope: Rope, tokens: Tensor, cache: Cache) -> Tensor:
    """Return the logits after the last of ``tokens``, fp32 of shape (vocabulary,), and keep their keys and values.

    Args:
        model: with whole weights.
        rope: frequencies that it was trained with last.
        tokens: int64 of shape (tokens,), those that the cache does not hold yet.
        cache: of the tokens before.
    """
    positions = torch.arange(cache.length, cache.length + len(tokens))[None]
    tables, states = rope.tables(positions), model.embedding(tokens[None])
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        states = states + _attention(block, states, tables, cache, layer)
        states = states + block.feed_forward(block.feed_forward_norm(states))
    cache.length += len(tokens)
    logits: Tensor = model.head(model.norm(states[:, -1]))[0].float()
    return logits


def _attention(block: Block, states: Tensor, tables: tuple[Tensor, Tensor], cache: Cache, layer: int) -> Tensor:
    attention = block.attention
    query, key, value = attention.heads_of(block.attention_norm(states))
    keys, values = cache.add(layer, rotate(key, tables), value)
    query, keys, values = (part.transpose(1, 2) for part in (rotate(query, tables), keys, values))
    new, whole = query.shape[2], keys.shape[2]
    mask = torch.ones(new, whole, dtype=torch.bool).tril(whole - new)
    mixed = F.scaled_dot_product_attention(query, keys, values, mask, enable_gqa=query.shape[1] != keys.shape[1])
    out: Tensor = attention.output(mixed.transpose(1, 2).flatten(-2))
    return out


def generate(
    model: Decoder, rope: Rope, prompt: list[int], sampling: Sampling, *, context: int, end_of_text: int, most: int
) -> Iterator[int]:
    """Yield tokens after a prompt until the end of text, ``most`` tokens, or the end of the context.

    Raises:
        UserError: if the prompt is empty or leaves no room.
    """
    if not 0 < len(prompt) < context:
        raise UserError(
            f"the prompt has {len(prompt)} tokens, and the context {context}",
            place="PROMPT",
            remedy="Give at least one token and fewer than the context has",
        )
    cache, generator = Cache(model, context), torch.Generator().manual_seed(sampling.seed)
    new = prompt
    for _ in range(min(most, context - len(prompt))):
        chosen = choose(next_logits(model, rope, torch.tensor(new), cache), sampling, generator)
        if chosen == end_of_text:
            return
        yield chosen
        new = [chosen]


def choose(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Return the next token."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    shares, order = (logits / sampling.temperature).softmax(-1).sort(descending=True, stable=True)
    # A token stays if those before it are not likely enough together; the first always does.
    before = shares.cumsum(-1) - shares
    shares = torch.where(before < sampling.top_p, shares, 0.0)
    return int(order[int(torch.multinomial(shares, 1, generator=generator))])


def load(job: Job) -> tuple[Decoder, Rope]:
    """Build the trained model of a run, in fp32, and the frequencies of its last phase.

    Raises:
        UserError: if training is not finished.
    """
    if not job.is_finished:
        raise UserError(
            "this run has no finished weights", place=str(job.folder), remedy=f"Train it: headrace train {job.folder}"
        )
    model = Decoder(job.model, job.vocabulary)
    held = _read(job.weights_path / "model.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(held[transformers_name(name)])
    return model, rope_of(job.schedule.phases[-1].rope, job.model.head_width)


def _read(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file that ``trainer.export`` wrote, all fp32."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:_LENGTH_BYTES], "little")
    header: dict[str, Any] = json.loads(data[_LENGTH_BYTES : _LENGTH_BYTES + size])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (_LENGTH_BYTES + size + offset for offset in entry["data_offsets"])
            values = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
            found[name] = values.view(entry["shape"])
    return found
