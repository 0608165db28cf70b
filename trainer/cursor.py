"""The stream's position in one domain: which group of documents is packed, and how many of its rows were served.

A group is a range of positions in the epoch's order of documents. When the context length changes within a group, the
tokens not served yet are packed again at the new length. So an epoch serves every token exactly once at any sequence of
context lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from shards.permute import derive_key
from shards.reader import ShardSet
from trainer.order import DocumentOrder, Int64Array, epoch_key
from trainer.packing import PackedRows, Spans, pack

GROUP_ROWS: Final = 128
"""Rows that a group fills at least, approximately: with fewer, best fit leaves gaps at long contexts."""

GROUP_SLOTS: Final = 1 << 21
"""Slots that a group fills at least: its last row is full in part only, which counts for more where rows are short."""

MAX_GROUP_ROWS: Final = 1_024
"""Rows that ``GROUP_SLOTS`` asks for at most."""

GROUP_DOCUMENTS: Final = 128
"""Documents in a group, at least: with fewer, a batch could hold many rows of the same long document."""


def group_documents(context_tokens: int, documents: int, tokens: int) -> int:
    """Return the documents of a group in a domain that has so many documents and tokens."""
    rows = max(GROUP_ROWS, min(GROUP_SLOTS // context_tokens, MAX_GROUP_ROWS))
    return max(GROUP_DOCUMENTS, -(-rows * context_tokens * documents // tokens))


@dataclass
class CursorState:
    """The state of a cursor: a few dozen bytes, however large the domain is.

    Attributes:
        epoch: number of the epoch, from 0.
        start: position of the group's first document in the epoch's order.
        count: documents in the group.
        packings: (context length, rows served) of the group's packings, in order; each has served at least one row.
    """

    epoch: int = 0
    start: int = 0
    count: int = 0
    packings: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """A packed group: its rows, and by slot the numbers and token lengths of its documents, int64 of shape (count,)."""

    rows: PackedRows
    documents: Int64Array
    lengths: Int64Array


class Cursor:
    """Serves the rows of one domain, epoch after epoch.

    Args:
        shards: the shards of the run.
        domain: the domain to serve.
        seed: seed of the run's order.
        max_epochs: number of epochs after which there are no more rows; None for no limit.
        window_shards: see ``DocumentOrder``.
        state: where to start; the beginning by default.
    """

    def __init__(
        self,
        shards: ShardSet,
        domain: str,
        seed: int,
        *,
        max_epochs: int | None = None,
        window_shards: int | None = None,
        state: CursorState | None = None,
    ) -> None:
        self._shards, self._domain, self._seed = shards, domain, seed
        self._max_epochs, self._window = max_epochs, window_shards
        self._documents = shards.documents(domain)
        self._tokens = shards.token_count(domain)
        self._order: tuple[int, DocumentOrder] | None = None
        self._state = state or CursorState()
        self._group: Group | None = None
        self._row = 0
        if self._state.count:
            self._restore()

    @property
    def state(self) -> CursorState:
        """A copy of the current state."""
        now = self._state
        return CursorState(now.epoch, now.start, now.count, list(now.packings))

    @property
    def done(self) -> bool:
        """True if no row is left because the last of ``max_epochs`` has been served."""
        if self._group is not None and self._row < self._group.rows.rows:
            return False
        epoch = self._state.epoch + (self._state.start + self._state.count >= self._documents)
        return not self._documents or (self._max_epochs is not None and epoch >= self._max_epochs)

    def take(self, context_tokens: int) -> tuple[Group, int] | None:
        """Serve the next row at a context length, as (group, row in it); None if no row is left."""
        if self._group is None or self._row == self._group.rows.rows:
            if not self._advance(context_tokens):
                return None
        elif self._group.rows.context_tokens != context_tokens:
            self._repack(self._group.rows.after(self._row).merged(), context_tokens)
        group = self._group
        assert group is not None
        packings = self._state.packings
        if self._row:
            packings[-1] = (context_tokens, self._row + 1)
        else:
            packings.append((context_tokens, 1))
        self._row += 1
        return group, self._row - 1

    def _advance(self, context_tokens: int) -> bool:
        """Go to the next group, in the next epoch if this one has ended; return False if there is none."""
        state = self._state
        epoch, start = state.epoch, state.start + state.count
        if start >= self._documents:
            epoch, start = epoch + bool(self._documents), 0
        if not self._documents or (self._max_epochs is not None and epoch >= self._max_epochs):
            return False
        wanted = group_documents(context_tokens, self._documents, self._tokens)
        left = self._documents - start
        # A short last group would fill its rows badly, so it is merged into the one before.
        self._state = CursorState(epoch, start, left if left < wanted + wanted // 2 else wanted)
        self._load()
        assert self._group is not None
        self._repack(Spans.whole(self._group.lengths), context_tokens)
        return True

    def _load(self) -> None:
        """Look up the documents of the group, without packing rows."""
        state = self._state
        if self._order is None or self._order[0] != state.epoch:
            key = epoch_key(self._seed, self._domain, state.epoch)
            self._order = state.epoch, DocumentOrder(self._shards.shard_rows(self._domain), key, self._window)
        documents = self._order[1](state.start, state.start + state.count)
        lengths = self._shards.lengths(self._domain, "train", documents)
        self._group = Group(PackedRows(0, Spans.whole(lengths[:0]), np.zeros(1, np.int64)), documents, lengths)

    def _repack(self, spans: Spans, context_tokens: int) -> None:
        assert self._group is not None
        state = self._state
        key = derive_key("rows", self._seed, self._domain, state.epoch, state.start, len(state.packings))
        self._group = Group(pack(spans, context_tokens, key), self._group.documents, self._group.lengths)
        self._row = 0

    def _restore(self) -> None:
        """Rebuild the group in the state that its packings left."""
        packings, self._state.packings = self._state.packings, []
        self._load()
        assert self._group is not None
        spans = Spans.whole(self._group.lengths)
        for context_tokens, served in packings:
            self._repack(spans, context_tokens)
            self._row = served
            self._state.packings.append((context_tokens, served))
            spans = self._group.rows.after(served).merged()
