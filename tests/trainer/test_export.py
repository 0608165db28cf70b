from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoModelForCausalLM

from shards.schedule.phase import Rope
from shards.training import ModelSettings, TrainSettings
from trainer.attention import lay_out
from trainer.export import export, transformers_config
from trainer.mesh import named
from trainer.rope import rope_of
from trainer.sharding import Sharding, shard


def sharded(model: ModelSettings, vocabulary: int, mesh: DeviceMesh) -> Sharding:
    settings = TrainSettings(precision="fp32")
    return shard(model, settings, vocabulary, named(mesh, settings))


@pytest.mark.parametrize(
    ("kind", "tied", "qk_norm"),
    [("none", True, False), ("theta", False, True), ("pi", True, True), ("yarn", False, False)],
)
def test_transformers_loads_what_was_trained(
    tmp_path: Path, mesh: DeviceMesh, kind: str, tied: bool, qk_norm: bool
) -> None:
    shape = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "init_std": 0.2}
    model = ModelSettings.model_validate({**shape, "tie_embeddings": tied, "qk_norm": qk_norm})
    sharding = sharded(model, 71, mesh)
    rope = Rope.model_validate({"kind": kind, "theta": 5_000.0, "factor": 4.0, "original_context_tokens": 32})
    config = transformers_config(model, 71, rope, 128, 0)
    export(sharding.shapes, sharding.masters.values(), config, tmp_path / "weights", writes=True)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path / "weights", dtype=torch.float32).eval()
    tokens = torch.randint(0, 71, (2, 128), generator=torch.Generator().manual_seed(0))
    layout = lay_out(torch.zeros_like(tokens), "documents", torch.device("cpu"))
    with torch.no_grad():
        expected = loaded(tokens).logits
        found = sharding.model(tokens, torch.arange(128).expand(2, 128), layout, rope_of(rope, 8))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.3


def test_the_header_covers_the_file(tmp_path: Path, mesh: DeviceMesh) -> None:
    model = ModelSettings(layers=1, width=8, heads=2)
    sharding = sharded(model, 11, mesh)
    rope = Rope(kind="none", theta=1e4, factor=1.0, original_context_tokens=32)
    config = transformers_config(model, 11, rope, 32, 0)
    export(sharding.shapes, sharding.masters.values(), config, tmp_path, writes=True)
    data = (tmp_path / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    spans = sorted(entry["data_offsets"] for name, entry in header.items() if name != "__metadata__")
    assert spans[0][0] == 0
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    assert len(data) == 8 + size + spans[-1][1] == 8 + size + 4 * model.parameters(11)
    assert (8 + size) % 8 == 0
