"""What all ranks do together. A user error that one rank raises is raised on every rank, with its message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from shards.errors import UserError

T = TypeVar("T")


def from_first(work: Callable[[], T]) -> T:
    """Call ``work`` on rank 0 alone and return its result on every rank.

    Raises:
        UserError: on every rank, if ``work`` raised it on rank 0.
    """
    message: list[Any] = [_attempt(work) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(message)
    result: T = _results(message)[0]
    return result


def on_each(work: Callable[[], T], group: dist.ProcessGroup | None = None) -> list[T]:
    """Call ``work`` on every rank and return all results, by rank, on every rank; ``group`` holds all ranks.

    Raises:
        UserError: on every rank, the one from the first rank on which ``work`` raised it.
    """
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, _attempt(work), group=group)
    return _results(gathered)


def any_asks(asks: bool) -> bool:
    """Return, on every rank, whether ``asks`` is True on any of them."""
    flag = torch.tensor(int(asks))
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    return bool(flag)


def _attempt(work: Callable[[], T]) -> tuple[T | None, UserError | None]:
    try:
        return work(), None
    except UserError as error:
        return None, error


def _results(attempts: list[Any]) -> list[Any]:
    for _, error in attempts:
        if error is not None:
            raise error
    return [result for result, _ in attempts]
