from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from transformers import AutoModelForCausalLM

from shards.errors import UserError
from shards.training import ModelSettings
from tests.trainer.synthetic_run import write_run
from trainer.attention import lay_out
from trainer.config import Job
from trainer.generate import Cache, Sampling, choose, generate, load, next_logits
from trainer.model import Decoder, initial_weight
from trainer.rope import Rope, plain_rope
from trainer.worker import train

VOCABULARY, CONTEXT = 83, 24
SHAPES = [
    ModelSettings(layers=2, width=32, heads=4, kv_heads=2, init_std=0.2),
    ModelSettings(layers=2, width=32, heads=4, init_std=0.2, qk_norm=True, tie_embeddings=True),
]
ROPE = plain_rope(8, 1e4)


def build(settings: ModelSettings) -> Decoder:
    model = Decoder(settings, VOCABULARY)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, settings, 1))
    return model


def whole(model: Decoder, rope: Rope, tokens: list[int]) -> Tensor:
    """Return the logits after every token, without a cache."""
    rows = torch.tensor([tokens])
    layout = lay_out(torch.zeros_like(rows), "documents", torch.device("cpu"))
    with torch.no_grad():
        logits: Tensor = model(rows, torch.arange(len(tokens))[None], layout, rope)[0]
    return logits


@pytest.mark.parametrize("settings", SHAPES)
@pytest.mark.parametrize("cuts", [(1,) * 12, (12,), (5, 1, 6)])
def test_with_a_cache_the_logits_are_those_without(settings: ModelSettings, cuts: tuple[int, ...]) -> None:
    model, cache = build(settings), Cache(build(settings), CONTEXT)
    tokens = torch.randint(0, VOCABULARY, (12,), generator=torch.Generator().manual_seed(0)).tolist()
    expected, done = whole(model, ROPE, tokens), 0
    for cut in cuts:
        found = next_logits(model, ROPE, torch.tensor(tokens[done : done + cut]), cache)
        done += cut
        torch.testing.assert_close(found, expected[done - 1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", SHAPES)
def test_without_temperature_the_likeliest_follows(settings: ModelSettings) -> None:
    model, tokens = build(settings), [3, 1, 4]
    found = list(generate(model, ROPE, [3, 1, 4], Sampling(0.0), context=CONTEXT, end_of_text=-1, most=99))
    for _ in range(CONTEXT - 3):
        tokens.append(int(whole(model, ROPE, tokens)[-1].argmax()))
    assert found == tokens[3:]
    end = found[5]
    shorter = list(generate(model, ROPE, [3, 1, 4], Sampling(0.0), context=CONTEXT, end_of_text=end, most=99))
    assert shorter == found[: found.index(end)]


def test_a_seed_decides_and_top_p_leaves_the_likeliest() -> None:
    logits = torch.tensor([3.0, 2.5, 2.0, -4.0])

    def drawn(**given: Any) -> list[int]:
        sampling = Sampling(**given)
        generator = torch.Generator().manual_seed(sampling.seed)
        return [choose(logits, sampling, generator) for _ in range(300)]

    assert drawn(seed=1) == drawn(seed=1) != drawn(seed=2)
    assert set(drawn(top_p=0.4)) == {0}
    assert set(drawn(top_p=0.8)) == {0, 1}
    assert set(drawn()) == {0, 1, 2} or set(drawn()) == {0, 1, 2, 3}
    shares = logits.softmax(0)
    assert drawn().count(0) / 300 == pytest.approx(shares[0].item(), abs=0.1)


@pytest.mark.parametrize("prompt", [[], [1] * CONTEXT])
def test_a_prompt_that_leaves_no_room_is_refused(prompt: list[int]) -> None:
    with pytest.raises(UserError, match="the prompt has"):
        list(generate(build(SHAPES[0]), ROPE, prompt, Sampling(), context=CONTEXT, end_of_text=0, most=1))


class Never:
    """Stands in for ``Stop``."""

    def __call__(self) -> bool:
        return False

    def deferred(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


def test_a_trained_run_continues_as_transformers_continues_it(tmp_path: Path, mesh: DeviceMesh) -> None:
    folder = write_run(tmp_path / "run", documents=60)
    with pytest.raises(UserError, match="no finished weights"):
        load(Job.load(folder))
    train(Job.load(folder), mesh, Never())  # type: ignore[arg-type]
    model, rope = load(Job.load(folder))
    prompt = [5, 9, 2, 44]
    found = list(generate(model, rope, prompt, Sampling(0.0), context=128, end_of_text=-1, most=20))
    oracle = AutoModelForCausalLM.from_pretrained(shutil.copytree(folder / "weights", tmp_path / "w")).eval()
    expected = oracle.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False, eos_token_id=None)
    assert found == expected[0, 4:].tolist()
