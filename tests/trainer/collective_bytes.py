"""Collectives and their bytes, counted as a step calls them."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Which argument is the whole tensor: what is gathered into, or reduced.
_KINDS = {
    "_allgather_base_": ("all_gather", 0),
    "_reduce_scatter_base_": ("reduce_scatter", 1),
    "allreduce_": ("all_reduce", 0),
}


class CollectiveBytes(TorchDispatchMode):
    """Counts collectives by kind: ``[calls, bytes]``. Kinds that nobody expects are counted under their own names."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        namespace, _, name = func.name().partition("::")
        if namespace == "c10d":
            kind, place = _KINDS.get(name.partition(".")[0], (name, 0))
            whole = args[place]
            tensors = [whole] if isinstance(whole, Tensor) else list(whole)
            calls, size = self.found.setdefault(kind, [0, 0])
            self.found[kind] = [calls + 1, size + sum(t.numel() * t.element_size() for t in tensors)]
        return func(*args, **(kwargs or {}))
