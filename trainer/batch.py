"""From the plan of a step (which spans go where) to the arrays that the model reads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from shards.catalog import Subset
from shards.reader import ShardSet
from trainer.cursor import Group
from trainer.order import Int64Array

IGNORE: Final = -100
"""Target that the loss ignores: PyTorch's ``ignore_index``."""

NO_DOCUMENT: Final = -1
"""Document number of padding, and domain of a row that is all padding."""


@dataclass(frozen=True)
class Placed:
    """Spans of documents placed in rows, sorted by (row, column). Arrays of shape (spans,), int64 except for ``last``.

    Attributes:
        row: the row that holds the span; column: where it begins in the row.
        domain: index into the schedule's domains.
        document: number of the document in its domain (see ``ShardSet``).
        start: first token in the document; length: number of tokens.
        last: bool, True if the span ends its document.
    """

    row: Int64Array
    column: Int64Array
    domain: Int64Array
    document: Int64Array
    start: Int64Array
    length: Int64Array
    last: npt.NDArray[np.bool_]

    def take(self, index: npt.NDArray[np.intp] | slice) -> Placed:
        """Return some of the spans."""
        return Placed(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @classmethod
    def of_group(cls, group: Group, first: int, rows: Int64Array, domain: int) -> Placed:
        """Place rows of a group, consecutively from row ``first``, in the given rows of a step."""
        offsets = group.rows.offsets[first : first + len(rows) + 1]
        spans = group.rows.spans.take(slice(int(offsets[0]), int(offsets[-1])))
        counts = offsets[1:] - offsets[:-1]
        before = np.cumsum(spans.length) - spans.length
        return cls(
            row=np.repeat(rows, counts),
            column=before - np.repeat(before[offsets[:-1] - offsets[0]], counts),
            domain=np.full(len(before), domain, np.int64),
            document=group.documents[spans.slot],
            start=spans.start,
            length=spans.length,
            last=spans.start + spans.length == group.lengths[spans.slot],
        )

    @classmethod
    def joined(cls, parts: list[Placed]) -> Placed:
        """Join spans and sort them by row. All spans of a row must come from one part."""
        empty = np.empty(0, np.int64)
        parts = [cls(empty, empty, empty, empty, empty, empty, empty.astype(np.bool_)), *parts]
        whole = cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__))
        return whole.take(np.argsort(whole.row, kind="stable"))


@dataclass(frozen=True)
class StepPlan:
    """Which spans make up a step: the rows of all ranks. No token has been read yet.

    Attributes:
        context_tokens: slots per row.
        domains: names, in the order of the schedule.
        domain: int64 of shape (rows,): index of each row's domain, -1 if the row is all padding.
        placed: the spans.
    """

    context_tokens: int
    domains: tuple[str, ...]
    domain: Int64Array
    placed: Placed

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.domain)

    @cached_property
    def segments(self) -> tuple[Int64Array, Int64Array, Int64Array]:
        """(first slot, slots, number in the row or -1) of each span and each run of padding, in slot order."""
        context, placed = self.context_tokens, self.placed
        count = np.bincount(placed.row, minlength=self.rows)
        number = np.arange(len(placed.row)) - np.repeat(np.cumsum(count) - count, count)
        used = np.bincount(placed.row, weights=placed.length, minlength=self.rows).astype(np.int64)
        padded = np.flatnonzero(used < context)
        first = np.concatenate([placed.row * context + placed.column, padded * context + used[padded]])
        length = np.concatenate([placed.length, context - used[padded]])
        number = np.concatenate([number, np.full(len(padded), NO_DOCUMENT)])
        order = np.argsort(first, kind="stable")
        return first[order], length[order], number[order]

    @property
    def padding(self) -> int:
        """Number of slots that hold no token."""
        return self.rows * self.context_tokens - int(self.placed.length.sum())

    @property
    def targets(self) -> int:
        """Number of targets: every token but the last one of a document has one."""
        return int(self.placed.length.sum()) - int(self.placed.last.sum())

    @property
    def cut_documents(self) -> int:
        """Number of documents that a row's end cuts: the rest of each comes in another row."""
        return int((~self.placed.last).sum())

    def part(self, rows: slice) -> StepPlan:
        """Return consecutive rows as a plan of their own, with rows counted from 0."""
        first, stop, stride = rows.indices(self.rows)
        if stride != 1:
            raise ValueError("the rows of a part must be consecutive")
        begin, end = np.searchsorted(self.placed.row, (first, max(first, stop)))
        part = self.placed.take(slice(int(begin), int(end)))
        shifted = Placed(part.row - first, *(getattr(part, name) for name in list(Placed.__dataclass_fields__)[1:]))
        return StepPlan(self.context_tokens, self.domains, self.domain[rows], shifted)


@dataclass(frozen=True)
class Batch:
    """Rows of tokens, with everything that model and loss need. A row holds documents side by side, then padding.

    Attributes:
        plan: the spans that the batch was assembled from.
        tokens: int64 of shape (rows, context); the end-of-text token in padding.
        targets: int64 of shape (rows, context): the document's next token, even if the row cuts the document and the
            next token lies in another row; ``IGNORE`` for a document's last token and in padding. So over an epoch
            every token except the first of each document is a target exactly once.
    """

    plan: StepPlan
    tokens: Int64Array
    targets: Int64Array

    @classmethod
    def with_segments(
        cls,
        plan: StepPlan,
        tokens: Int64Array,
        targets: Int64Array,
        document: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
    ) -> Batch:
        """Return a batch with ``document`` and ``positions`` that were computed before."""
        batch = cls(plan, tokens, targets)
        # Where cached_property would put them.
        batch.__dict__["_segments"] = document, positions
        return batch

    @property
    def domain(self) -> Int64Array:
        """int64 of shape (rows,): index of each row's domain, -1 if the row is all padding."""
        return self.plan.domain

    @cached_property
    def document(self) -> npt.NDArray[np.int32]:
        """int32 of shape (rows, context): number of the span in its row, from 0; -1 in padding."""
        return self._segments[0]

    @cached_property
    def positions(self) -> npt.NDArray[np.int32]:
        """int32 of shape (rows, context): position in the span, from 0; padding also counts from 0."""
        return self._segments[1]

    @cached_property
    def _segments(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        first, length, number = self.plan.segments
        shape = self.tokens.shape
        positions = np.arange(self.tokens.size, dtype=np.int32) - np.repeat(first.astype(np.int32), length)
        return np.repeat(number.astype(np.int32), length).reshape(shape), positions.reshape(shape)


def assemble(shards: ShardSet, plan: StepPlan, subset: Subset = "train") -> Batch:
    """Read the tokens of a plan."""
    context, placed = plan.context_tokens, plan.placed
    # Widened at once, after all spans are copied: copies that widen take twice as long.
    flat = np.full(plan.rows * context, shards.catalog.end_of_text, shards.dtype)
    first = placed.row * context + placed.column
    for index in np.unique(placed.domain).tolist():
        mine = placed.domain == index
        domain, part, at = plan.domains[index], placed.take(np.flatnonzero(mine)), first[mine]
        shards.gather(domain, subset, part.document, part.start, part.length, flat, at)
    targets = np.empty(flat.size, np.int64)
    targets[:-1] = flat[1:]
    targets[-1:] = IGNORE
    targets[first + placed.length - 1] = IGNORE
    for index in np.unique(placed.domain[~placed.last]).tolist():
        # Where a row cuts a document, the last target is the token after the cut, which lies in another row.
        cut = (placed.domain == index) & ~placed.last
        part, after = placed.take(np.flatnonzero(cut)), (first + placed.length - 1)[cut]
        ones = np.ones(len(after), np.int64)
        shards.gather(plan.domains[index], subset, part.document, part.start + part.length, ones, targets, after)
    begins, length, number = plan.segments
    for begin, size in zip(begins[number < 0].tolist(), length[number < 0].tolist(), strict=True):
        targets[begin : begin + size] = IGNORE
    shape = plan.rows, context
    return Batch(plan, flat.astype(np.int64).reshape(shape), targets.reshape(shape))


def micro_batches(rows: int, micro_batch_rows: int, rank: int, ranks: int) -> list[slice]:
    """Return the micro-batches of one of ``ranks`` ranks, as slices of a step's rows.

    A step is cut into micro-batches of ``micro_batch_rows`` (the last may be shorter) for any number of ranks, and each
    rank takes consecutive ones. So the number of ranks decides only who computes a micro-batch, never what is in it.
    Ranks differ by at most one micro-batch, and the first rank always has one.
    """
    count = -(-rows // micro_batch_rows)
    mine = range(-(-count * rank // ranks), -(-count * (rank + 1) // ranks))
    return [slice(index * micro_batch_rows, min(rows, (index + 1) * micro_batch_rows)) for index in mine]
