"""Final weights in the form that transformers reads: ``config.json`` and ``model.safetensors`` of ``LlamaForCausalLM``
(of ``Qwen3ForCausalLM`` with normalised queries and keys).

The safetensors layout (a length, a JSON header, raw bytes) is written here: that takes little code and no further
package, and loading the weights unpickles nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from shards.schedule import schedule
from shards.store import Store
from shards.training import ModelSettings

_OUTER: Final = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
_INNER: Final = {
    "attention_norm": "input_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "feed_forward_norm": "post_attention_layernorm",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.down": "mlp.down_proj",
}


def transformers_name(name: str) -> str:
    """Return the name of a parameter in the Llama of transformers."""
    if name in _OUTER:
        return _OUTER[name]
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{_INNER[rest.removesuffix('.weight')]}.weight"


def transformers_config(
    model: ModelSettings, vocabulary: int, rope: schedule.Rope, context_tokens: int, end_of_text: int
) -> dict[str, Any]:
    """Return the ``config.json`` of a model whose last phase had this RoPE and context length."""
    parameters: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.theta}
    if rope.kind == "pi":
        parameters |= {"rope_type": "linear", "factor": rope.factor}
    elif rope.kind == "yarn":
        original = rope.original_context_tokens
        parameters |= {"rope_type": "yarn", "factor": rope.factor, "original_max_position_embeddings": original}
    # Llama with normalised queries and keys is Qwen 3.
    kind = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    if model.qk_norm:
        kind = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    return {
        **kind,
        "head_dim": model.head_width,
        "vocab_size": vocabulary,
        "hidden_size": model.width,
        "intermediate_size": model.hidden_width,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.key_value_heads,
        "max_position_embeddings": context_tokens,
        "rms_norm_eps": model.norm_epsilon,
        "tie_word_embeddings": model.tie_embeddings,
        "rope_parameters": parameters,
        "eos_token_id": end_of_text,
        "bos_token_id": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
    }


def export(
    shapes: Mapping[str, torch.Size],
    weights: Iterable[Tensor],
    config: dict[str, Any],
    folder: Path,
    *,
    writes: bool,
) -> None:
    """Write weights, fp32 and in the order of ``shapes``.

    All ranks call this, because each of the ``weights`` is gathered when it is asked for; one of them ``writes``. The
    folder is complete once :meth:`trainer.config.Job.mark_finished` has written its marker afterwards.
    """
    if writes:
        folder.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = shape.numel() * 4
        header[transformers_name(name)] = {
            "dtype": "F32",
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = folder / "model.safetensors"
    file = path.open("wb") if writes else None
    if file is not None:
        file.write(len(text).to_bytes(8, "little") + text)
    for whole in weights:
        if file is not None:
            file.write(whole.contiguous().cpu().numpy().tobytes())
    if file is not None:
        file.close()
        Store(folder).write_json("config.json", config)
        Store(folder).clear_scratch()
