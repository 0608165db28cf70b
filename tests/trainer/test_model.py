from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from shards.training import ModelSettings, TrainSettings
from trainer import model as module
from trainer.attention import lay_out
from trainer.batch import IGNORE
from trainer.export import transformers_name
from trainer.model import Decoder, initial_weight
from trainer.rope import plain_rope

CPU = torch.device("cpu")
VOCABULARY = 97
SHAPES = [
    ModelSettings(layers=2, width=32, heads=4, ffn_width=40),
    ModelSettings(layers=2, width=32, heads=4, kv_heads=2, tie_embeddings=True),
    ModelSettings(layers=2, width=32, heads=4, kv_heads=2, qk_norm=True),
]


def build(settings: ModelSettings, seed: int = 0) -> Decoder:
    decoder = Decoder(settings, VOCABULARY)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, settings, seed))
            # Larger than at the start of training, so that attention and norms matter in a comparison.
            parameter.mul_(3.0)
    return decoder


def run(decoder: Decoder, tokens: Tensor, segments: Tensor, positions: Tensor, targets: Tensor | None = None) -> Tensor:
    rope = plain_rope(decoder.settings.head_width, 10_000.0)
    out: Tensor = decoder(tokens, positions, lay_out(segments, "documents", CPU), rope, targets)
    return out


def oracle_of(decoder: Decoder) -> LlamaForCausalLM | Qwen3ForCausalLM:
    settings = decoder.settings
    config = (Qwen3Config if settings.qk_norm else LlamaConfig)(
        head_dim=settings.head_width,
        vocab_size=VOCABULARY,
        hidden_size=settings.width,
        intermediate_size=settings.hidden_width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.key_value_heads,
        rms_norm_eps=settings.norm_epsilon,
        tie_word_embeddings=settings.tie_embeddings,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
    )
    oracle = (Qwen3ForCausalLM if settings.qk_norm else LlamaForCausalLM)(config).eval()
    weights = {transformers_name(name): value for name, value in decoder.named_parameters()}
    missing, unexpected = oracle.load_state_dict(weights, strict=False)
    assert unexpected == []
    assert missing == (["lm_head.weight"] if settings.tie_embeddings else [])
    return oracle


@pytest.mark.parametrize("settings", SHAPES)
def test_logits_are_those_of_transformers(settings: ModelSettings) -> None:
    decoder = build(settings)
    tokens = torch.randint(0, VOCABULARY, (3, 50), generator=torch.Generator().manual_seed(1))
    segments, positions = torch.zeros_like(tokens), torch.arange(50).expand(3, 50)
    with torch.no_grad():
        expected = oracle_of(decoder)(tokens).logits
        torch.testing.assert_close(run(decoder, tokens, segments, positions), expected, rtol=1e-4, atol=1e-4)
    assert expected.std() > 0.1


@pytest.mark.parametrize("settings", SHAPES)
def test_documents_packed_in_a_row_have_the_logits_they_have_alone(settings: ModelSettings) -> None:
    decoder = build(settings)
    lengths = [5, 17, 1, 9]
    documents = [torch.randint(0, VOCABULARY, (1, n)) for n in lengths]
    segments = torch.tensor([[number for number, n in enumerate(lengths) for _ in range(n)]])
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    with torch.no_grad():
        packed = run(decoder, torch.cat(documents, 1), segments, positions)
        alone = [run(decoder, d, torch.zeros_like(d), torch.arange(d.shape[1])[None]) for d in documents]
    torch.testing.assert_close(packed, torch.cat(alone, 1), rtol=1e-4, atol=1e-5)


def test_losses_are_cross_entropies_and_zero_where_ignored() -> None:
    decoder = build(SHAPES[0])
    tokens = torch.randint(0, VOCABULARY, (2, 12))
    segments, positions = torch.zeros_like(tokens), torch.arange(12).expand(2, 12)
    targets = torch.roll(tokens, -1, 1)
    targets[:, -1] = IGNORE
    with torch.no_grad():
        losses = run(decoder, tokens, segments, positions, targets)
        chances = run(decoder, tokens, segments, positions).log_softmax(-1)
    expected = -chances[:, :-1].gather(-1, targets[:, :-1, None])[..., 0]
    torch.testing.assert_close(losses[:, :-1], expected)
    assert losses[:, -1].tolist() == [0.0, 0.0]


def test_losses_in_pieces_are_the_same_with_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = torch.randint(0, VOCABULARY, (2, 12))
    segments, positions = torch.zeros_like(tokens), torch.arange(12).expand(2, 12)
    results = []
    for most in (1 << 26, VOCABULARY * 7):
        monkeypatch.setattr(module, "MAX_LOGITS", most)
        decoder = build(SHAPES[1])
        losses = run(decoder, tokens, segments, positions, torch.roll(tokens, -1, 1))
        losses.sum().backward()
        results.append([losses, *(p.grad for p in decoder.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("settings", SHAPES)
def test_the_loss_of_an_untrained_model_is_that_of_a_guess(settings: ModelSettings) -> None:
    decoder = Decoder(settings, VOCABULARY)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            parameter.copy_(initial_weight(name, parameter.shape, settings, 3))
    tokens = torch.randint(0, VOCABULARY, (4, 64))
    losses = run(decoder, tokens, torch.zeros_like(tokens), torch.arange(64).expand(4, 64), torch.roll(tokens, -1, 1))
    assert losses.mean().item() == pytest.approx(math.log(VOCABULARY), abs=0.05)


@pytest.mark.parametrize("settings", SHAPES)
def test_parameters_are_counted_before_any_is_made(settings: ModelSettings) -> None:
    assert settings.parameters(VOCABULARY) == sum(p.numel() for p in Decoder(settings, VOCABULARY).parameters())


def test_initial_values_depend_on_name_and_seed_alone() -> None:
    shape = torch.Size([4, 3])
    first = initial_weight("blocks.0.attention.query.weight", shape, SHAPES[0], 0)
    assert torch.equal(first, initial_weight("blocks.0.attention.query.weight", shape, SHAPES[0], 0))
    assert not torch.equal(first, initial_weight("blocks.1.attention.query.weight", shape, SHAPES[0], 0))
    assert not torch.equal(first, initial_weight("blocks.0.attention.query.weight", shape, SHAPES[0], 1))


def test_decay_spares_norms_and_embeddings() -> None:
    names = [name for name, _ in Decoder(SHAPES[0], VOCABULARY).named_parameters()]
    spared = {name for name in names if not TrainSettings().decays(name)}
    assert spared == {
        "embedding.weight",
        "norm.weight",
        *(f"blocks.{i}.{half}_norm.weight" for i in range(2) for half in ("attention", "feed_forward")),
    }


def test_names_given_decay_or_do_not() -> None:
    settings = TrainSettings(no_decay=("*norm*", "head.weight"))
    assert settings.decays("embedding.weight")
    assert not settings.decays("head.weight")
    assert not settings.decays("blocks.3.attention.query_norm.weight")


def test_what_writes_to_the_residual_stream_is_scaled_by_the_model_or_by_its_depth() -> None:
    shape = torch.Size([400, 400])
    deep = ModelSettings(layers=8, width=32, heads=4, depth_init=True)
    for block in (0, 3, 7):
        name = f"blocks.{block}.feed_forward.down.weight"
        by_depth, by_model = (
            initial_weight(name, shape, settings, 0).std().item()
            for settings in (deep, deep.model_copy(update={"depth_init": False}))
        )
        assert by_depth == pytest.approx(0.02 / math.sqrt(2 * (block + 1)), rel=0.02)
        assert by_model == pytest.approx(0.02 / math.sqrt(16), rel=0.02)
    gate = initial_weight("blocks.3.feed_forward.gate.weight", shape, deep, 0)
    assert gate.std().item() == pytest.approx(0.02, rel=0.02)


def test_a_z_loss_moves_gradients_and_leaves_losses_as_they_are() -> None:
    tokens = torch.randint(0, VOCABULARY, (2, 16), generator=torch.Generator().manual_seed(0))
    targets = torch.roll(tokens, -1, 1)
    targets[0, 3] = IGNORE
    positions, layout = torch.arange(16).expand(2, 16), lay_out(torch.zeros_like(tokens), "documents", CPU)
    plain, drawn = build(SHAPES[0]), Decoder(SHAPES[0], VOCABULARY, z_loss=1e-2)
    drawn.load_state_dict(plain.state_dict())
    rope = plain_rope(8, 10_000.0)
    losses = [model(tokens, positions, layout, rope, targets) for model in (plain, drawn)]
    assert torch.equal(*losses)
    losses[1].sum().backward()
    normaliser = plain(tokens, positions, layout, rope).logsumexp(-1)
    (losses[0].sum() + 1e-2 * normaliser[targets != IGNORE].square().sum()).backward()
    for mine, expected in zip(drawn.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-4, atol=1e-5)
