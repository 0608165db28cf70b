"""Bytes of tensors counted as they come and go: what the formulas of memory are held to, on any device."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakBytes(TorchDispatchMode):
    """Counts the storages that operators return while they live. What a kernel allocates for itself is not seen."""

    def __init__(self, *held: torch.Tensor) -> None:
        """Start with the tensors that are ``held`` already."""
        super().__init__()
        self.peak = 0
        self._storages: dict[int, weakref.ref[torch.UntypedStorage]] = {}
        for tensor in held:
            self._see(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        leaves = [leaf for leaf in tree_leaves(out) if type(leaf) in (torch.Tensor, torch.nn.Parameter)]
        new = [self._see(leaf) for leaf in leaves if leaf.device.type != "meta"]
        if True in new:
            self._count()
        return out

    def _count(self) -> None:
        # All of them anew: FSDP empties and fills storages without an operator.
        self.peak = max(self.peak, sum(s.nbytes() for ref in self._storages.values() if (s := ref()) is not None))

    def _see(self, tensor: torch.Tensor) -> bool:
        """Take note of a tensor and return whether its storage is a new one."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return False
        self._storages[key] = weakref.ref(storage, lambda _: self._storages.pop(key, None))
        return True
