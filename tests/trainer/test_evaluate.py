from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from shards.reader import ShardSet
from tests.shards.small_shards import tokens_of
from tests.trainer.synthetic_run import write_run
from trainer.batch import IGNORE, assemble
from trainer.evaluate import HeldOut, held_out_plan
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


def test_the_limit_takes_whole_documents_from_the_first(shards: ShardSet) -> None:
    domain = shards.domains[0]
    first, second = (len(tokens_of(shards, domain, "held_out", d)) for d in (0, 1))
    for limit, documents in ((1, 1), (first, 1), (first + second, 2), (first + second - 1, 1)):
        placed = held_out_plan(shards, 1024, limit).placed
        assert set(placed.document[placed.domain == 0].tolist()) == set(range(documents))


def test_where_nothing_is_held_out_nothing_is_said(tmp_path: Path, mesh: DeviceMesh) -> None:
    shards = ShardSet.open(write_run(tmp_path / "run", held_out=False) / "shards")
    assert held_out_plan(shards, 32, 100).rows == 0
    assert HeldOut(shards, 100, 0, 1, CPU)(Teller(), 32, 4, plain_rope(8, 1e4), "documents") == {}
