"""Shapes of models from 1 million to 70 billion parameters, by name.

Those below 1 B are named by the parameters of their blocks, because embeddings depend on the vocabulary. The others are
published shapes: 1b and 3b are Llama 3.2, 8b and 70b Llama 3 (arXiv 2407.21783), 7b and 13b Llama 2 (arXiv 2307.09288),
30b is the 33 B of LLaMA (arXiv 2302.13971).
"""

from __future__ import annotations

import difflib
from types import MappingProxyType
from typing import Any, Final

from shards.errors import UserError

PRESETS: Final = MappingProxyType(
    {
        "1m": {"layers": 5, "width": 128, "heads": 4, "tie_embeddings": True},
        "10m": {"layers": 8, "width": 320, "heads": 5, "tie_embeddings": True},
        "30m": {"layers": 10, "width": 512, "heads": 8, "tie_embeddings": True},
        "100m": {"layers": 14, "width": 768, "heads": 12, "tie_embeddings": True},
        "300m": {"layers": 24, "width": 1024, "heads": 16, "tie_embeddings": True},
        "1b": {
            "layers": 16,
            "width": 2048,
            "heads": 32,
            "kv_heads": 8,
            "ffn_width": 8192,
            "tie_embeddings": True,
        },
        "3b": {
            "layers": 28,
            "width": 3072,
            "heads": 24,
            "kv_heads": 8,
            "ffn_width": 8192,
            "tie_embeddings": True,
        },
        "7b": {"layers": 32, "width": 4096, "heads": 32, "ffn_width": 11008},
        "8b": {"layers": 32, "width": 4096, "heads": 32, "kv_heads": 8, "ffn_width": 14336},
        "13b": {"layers": 40, "width": 5120, "heads": 40, "ffn_width": 13824},
        "30b": {"layers": 60, "width": 6656, "heads": 52, "ffn_width": 17920},
        "70b": {"layers": 80, "width": 8192, "heads": 64, "kv_heads": 8, "ffn_width": 28672},
    }
)


def preset(name: str, place: str = "model.preset") -> dict[str, Any]:
    """Return the settings of a preset.

    Raises:
        UserError: if there is none of this name.
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
        raise UserError(
            f"there is no preset {name!r}", place=place, remedy=f"Did you mean {near!r}? There are {', '.join(PRESETS)}"
        )
    return dict(PRESETS[name])
