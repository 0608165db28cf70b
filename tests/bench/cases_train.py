"""Forward and backward of one micro-batch in emulated bf16, beside fp32 and, if the processor has it, native bf16.

``ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2`` makes a newer processor behave like an older one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator

import torch
from harness import Case

from pipelines.demo.recipe import demo_recipe
from pipelines.recipe import parse_recipe
from shards.training import ModelSettings
from trainer.attention import lay_out
from trainer.bf16 import has_bf16
from trainer.model import Decoder, initial_weight
from trainer.rope import plain_rope

CPU = torch.device("cpu")

DOCUMENTS_PER_ROW = 2


def cases() -> Iterator[Case]:
    """Yield the cases."""
    torch.set_num_threads(1)
    wide = ModelSettings(layers=2, width=768, heads=12), 8_192, 1, 512
    for name, shape in (("train_192", _demo_shape()), ("train_768", wide)):
        _, _, rows, context = shape
        floors = {"fp32": _step(*shape, torch.float32)}
        if has_bf16(CPU):
            floors["native bf16"] = _step(*shape, torch.bfloat16)
        yield Case(
            name,
            _step(*shape, torch.bfloat16, emulate_bf16=True),
            floors,
            rows * DOCUMENTS_PER_ROW,
            tokens=rows * context,
            note="a micro-batch of packed rows through the model and back, bf16 emulated through fp32",
        )


def _demo_shape() -> tuple[ModelSettings, int, int, int]:
    """Return (model, vocabulary, rows, context) of a micro-batch of the demo's first phase."""
    recipe = parse_recipe(tomllib.loads(demo_recipe()), "the demo's recipe")
    assert recipe.model is not None
    assert recipe.training is not None
    assert recipe.schedule is not None
    context = recipe.schedule.phases[0].context_tokens
    return recipe.model, recipe.tokenizer.vocab_size, recipe.training.rows_per_micro_batch(context), context


def _step(
    settings: ModelSettings,
    vocabulary: int,
    rows: int,
    context: int,
    dtype: torch.dtype,
    *,
    emulate_bf16: bool = False,
) -> Callable[[], None]:
    model = Decoder(settings, vocabulary, emulate_bf16=emulate_bf16)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, settings, 0))
    model.to(dtype)
    tokens = torch.randint(0, vocabulary, (rows, context), generator=torch.Generator().manual_seed(0))
    positions = torch.arange(context) % (context // DOCUMENTS_PER_ROW)
    layout = lay_out((torch.arange(context) // (context // DOCUMENTS_PER_ROW)).expand(rows, -1), "documents", CPU)
    rope = plain_rope(settings.head_width, 10_000.0)

    def step() -> None:
        losses = model(tokens, positions.expand(rows, -1), layout, rope, tokens.roll(-1, 1))
        losses.mean().backward()
        model.zero_grad(set_to_none=True)

    return step
