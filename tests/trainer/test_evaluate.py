from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from shards.reader import ShardSet
from tests.shards.small_shards import shards_of_lengths, tokens_of
from tests.trainer.synthetic_run import write_run
from trainer import evaluate
from trainer.batch import IGNORE, assemble
from trainer.evaluate import HeldOut, held_out_plan, sample_of
from trainer.rope import plain_rope

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> ShardSet:
    return ShardSet.open(write_run(tmp_path_factory.mktemp("run") / "run") / "shards")


class Teller(nn.Module):
    """Returns the target itself as loss, so that a mean over it shows which targets were seen."""

    def forward(self, tokens: Tensor, positions: Tensor, layout: object, rope: object, targets: Tensor) -> Tensor:
        return torch.where(targets == IGNORE, 0, targets).float()


@pytest.mark.parametrize("context", [8, 32, 500])
def test_every_token_but_a_documents_first_is_a_target_once(shards: ShardSet, context: int) -> None:
    batch = assemble(shards, held_out_plan(shards, context, 1 << 30), "held_out")
    for index, domain in enumerate(shards.domains):
        documents = range(shards.documents(domain, "held_out"))
        expected = np.concatenate([tokens_of(shards, domain, "held_out", d)[1:] for d in documents])
        found = batch.targets[batch.domain == index]
        assert sorted(found[found != IGNORE].tolist()) == sorted(expected.tolist())


@pytest.mark.parametrize("rows", [1, 3, 1000])
@pytest.mark.parametrize("context", [16, 64])
def test_the_loss_is_over_the_same_tokens_at_any_context(
    shards: ShardSet, mesh: DeviceMesh, context: int, rows: int
) -> None:
    found = HeldOut(shards, 1 << 30, 0, 1, CPU)(Teller(), context, rows, plain_rope(8, 1e4), "documents")
    for domain in shards.domains:
        documents = range(shards.documents(domain, "held_out"))
        expected = np.concatenate([tokens_of(shards, domain, "held_out", d)[1:] for d in documents]).astype(np.float64)
        assert found[domain] == (pytest.approx(expected.mean(), rel=1e-9), len(expected))


def test_the_limit_takes_whole_documents_in_the_order_of_the_sample(shards: ShardSet) -> None:
    domain = shards.domains[0]
    order = sample_of(shards, domain, 1 << 30).tolist()
    assert sorted(order) == list(range(shards.documents(domain, "held_out")))
    assert order != sorted(order)
    first, second = (len(tokens_of(shards, domain, "held_out", d)) for d in order[:2])
    for limit, documents in ((0, 1), (1, 1), (first, 1), (first + second, 2), (first + second - 1, 1)):
        placed = held_out_plan(shards, 1024, limit).placed
        assert set(placed.document[placed.domain == 0].tolist()) == set(order[:documents])


@pytest.mark.parametrize("look", [1, 2, 5])
def test_the_sample_does_not_depend_on_how_many_are_looked_at_together(
    shards: ShardSet, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    wanted = [sample_of(shards, "web", limit).tolist() for limit in range(0, 400, 7)]
    monkeypatch.setattr(evaluate, "_LOOK_DOCUMENTS", look)
    assert [sample_of(shards, "web", limit).tolist() for limit in range(0, 400, 7)] == wanted


def test_documents_of_any_place_are_as_likely_to_be_evaluated(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, {name: [[2]] for name in "abcdefgh"}, {name: [5] * 600 for name in "abcdefgh"})
    picked = np.concatenate([sample_of(shards, name, 5 * 150) for name in "abcdefgh"])
    assert len(picked) == 8 * 150
    # A quarter of each third of the documents, to four standard deviations of a binomial.
    counts = np.bincount(picked // 200, minlength=3)
    assert (np.abs(counts - 400) < 4 * (1_600 * 0.25 * 0.75) ** 0.5).all()


def test_where_nothing_is_held_out_nothing_is_said(tmp_path: Path, mesh: DeviceMesh) -> None:
    shards = ShardSet.open(write_run(tmp_path / "run", held_out=False) / "shards")
    assert held_out_plan(shards, 32, 100).rows == 0
    assert HeldOut(shards, 100, 0, 1, CPU)(Teller(), 32, 4, plain_rope(8, 1e4), "documents") == {}
