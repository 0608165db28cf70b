"""Parts of tensors: the rows that a rank holds of a whole, and who else holds them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """A rank's rows of a named tensor; to load it, write into ``tensor``.

    Attributes:
        tensor: fp32, consecutive rows of the whole, possibly none.
        shape: shape of the whole.
        first: row of the whole that ``tensor`` begins with.
        replica: place of this rank among the ``replicas`` that hold the same rows.
        replicas: number of ranks that do.
    """

    tensor: Tensor
    shape: torch.Size
    first: int = 0
    replica: int = 0
    replicas: int = 1

    @property
    def rows(self) -> range:
        """Rows of the whole that this rank holds."""
        return range(self.first, self.first + len(self.tensor))

    def share(self) -> Part:
        """Return the rows that this rank writes: replicas divide them, so that each row is written once."""
        size = len(self.tensor)
        begin, end = size * self.replica // self.replicas, size * (self.replica + 1) // self.replicas
        return Part(self.tensor[begin:end], self.shape, self.first + begin)


def first_row(rows: int, rank: int, ranks: int) -> int:
    """Return the first of the rows that a rank owns when ``rows`` are divided as ``Shard(0)`` divides them."""
    return min(rows, -(-rows // ranks) * rank)
