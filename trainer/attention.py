"""Causal attention within each document: rows are packed, and no document attends to another.

There are three backends with the same result. ``documents`` loops over the documents, which is fastest on CPU;
``dense`` masks a whole (context, context) matrix; ``flex`` compiles a block mask on CUDA and skips blocks between
documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

Backend = Literal["documents", "dense", "flex"]


@dataclass(frozen=True)
class Layout:
    """Which tokens of packed rows belong to the same document.

    Attributes:
        rows: number of rows.
        context: tokens per row.
        lengths: lengths of the documents in tokens, row by row; they add up to rows * context.
        mask: for ``dense``, bool of shape (rows, 1, context, context), True where a query may attend.
        blocks: for ``flex``, the same as a block mask.
    """

    rows: int
    context: int
    lengths: list[int]
    mask: Tensor | None = None
    blocks: BlockMask | None = None

    @property
    def is_whole_rows(self) -> bool:
        """True if every row is a single document."""
        return len(self.lengths) == self.rows


def choose_backend(setting: Literal["auto", "documents", "dense", "flex"], device: torch.device) -> Backend:
    """Return the backend for a device: flex on CUDA, else the loop over documents (flex has no backward on CPU)."""
    if setting != "auto":
        return setting
    return "flex" if device.type == "cuda" else "documents"


def lay_out(segments: Tensor, backend: Backend, device: torch.device) -> Layout:
    """Return the layout of packed rows.

    Args:
        segments: integers of shape (rows, context) on the CPU; equal neighbours in a row belong to one document.
        backend: the one that :func:`attend` is to use.
        device: where attention is computed.
    """
    rows, context = segments.shape
    starts = torch.ones(rows, context, dtype=torch.bool)
    starts[:, 1:] = segments[:, 1:] != segments[:, :-1]
    where = torch.nonzero(starts.flatten()).flatten()
    lengths = torch.diff(where, append=torch.tensor([rows * context]))
    plain = Layout(rows, context, lengths.tolist())
    # Numbered by run: a segment id that recurs later in the row is another document.
    runs = starts.cumsum(1).to(device)
    if backend == "dense":
        causal = torch.ones(context, context, dtype=torch.bool, device=device).tril()
        return Layout(rows, context, plain.lengths, mask=((runs[:, :, None] == runs[:, None, :]) & causal)[:, None])
    if backend == "flex":

        def same_document(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (query >= key) & (runs[row, query] == runs[row, key])

        blocks = create_block_mask(same_document, rows, None, context, context, device=device.type)
        return Layout(rows, context, plain.lengths, blocks=blocks)
    return plain


def attend(query: Tensor, key: Tensor, value: Tensor, layout: Layout, *, emulate_bf16: bool = False) -> Tensor:
    """Attend causally inside each document.

    Args:
        query: shape (rows, context, heads, head_width).
        key: shape (rows, context, kv_heads, head_width); heads is a multiple of kv_heads.
        value: as key.
        layout: layout of the same rows and context.
        emulate_bf16: compute in fp32 on bf16 inputs (``trainer.bf16``). The probabilities, which never leave the
            kernel, then stay in fp32.

    Returns:
        A tensor with the shape and dtype of ``query``.
    """
    if emulate_bf16:
        return attend(query.float(), key.float(), value.float(), layout).to(query.dtype)
    if layout.blocks is not None:
        return _flex(query, key, value, layout.blocks)
    groups = query.shape[2] // key.shape[2]
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=2), value.repeat_interleave(groups, dim=2)
    if layout.mask is not None:
        return _scaled(query, key, value, layout.mask)
    if layout.is_whole_rows:
        return _scaled(query, key, value)
    flat = (states.flatten(0, 1)[None] for states in (query, key, value))
    # split, not slices: its backward is one concatenation, while that of each slice makes a full array of zeros.
    parts = (torch.split(states, layout.lengths, dim=1) for states in flat)
    outputs = [_scaled(q, k, v) for q, k, v in zip(*parts, strict=True)]
    return torch.cat(outputs, dim=1).view_as(query)


def _scaled(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    query, key, value = query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)
    return F.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None).transpose(1, 2)


def _flex(query: Tensor, key: Tensor, value: Tensor, blocks: BlockMask) -> Tensor:
    states = (tensor.transpose(1, 2) for tensor in (query, key, value))
    kernel = _compiled_flex() if query.is_cuda else flex_attention
    return kernel(*states, block_mask=blocks, enable_gqa=query.shape[2] != key.shape[2]).transpose(1, 2)  # type: ignore[no-any-return]


@cache
def _compiled_flex() -> Any:
    return torch.compile(flex_attention, dynamic=False)
