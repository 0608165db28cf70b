from __future__ import annotations

import json
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from shards.errors import IncompleteError, UserError
from shards.reader import ShardSet
from tests.trainer.synthetic_run import PHASES, write_run
from trainer import dataset as module
from trainer.batch import IGNORE
from trainer.dataset import Item, StreamDataset, transformers_inputs
from trainer.stream import Stream

ROWS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run") / "run", training={"seed": 0})


def dataset(folder: Path, **options: Any) -> StreamDataset:
    return StreamDataset(folder, **{"micro_batch_rows": ROWS, **options})


def same(ours: list[Item], theirs: list[Item]) -> bool:
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(one.keys() == two.keys() and _equal(one, two) for one, two in pairs)


def _equal(one: Item, two: Item) -> bool:
    return all(torch.equal(torch.as_tensor(one[name]), torch.as_tensor(two[name])) for name in one)


def test_items_are_the_streams_rows_in_order(folder: Path) -> None:
    data = dataset(folder)
    stream = Stream(ShardSet.open(folder / "shards"), data.schedule, 0)
    items = list(data)
    assert data.vocabulary == 300
    assert {item["step"] for item in items} == set(range(data.schedule.steps))
    for step in range(data.schedule.steps):
        mine = [item for item in items if item["step"] == step]
        batch = stream.batch(step)
        assert [item["is_last"] for item in mine] == [False] * (len(mine) - 1) + [True]
        for name, whole in (
            ("tokens", batch.tokens),
            ("targets", batch.targets),
            ("positions", batch.positions),
            ("documents", batch.document),
        ):
            assert torch.equal(torch.cat([item[name] for item in mine]), torch.from_numpy(whole))
        assert {item["step_targets"] for item in mine} == {int((batch.targets != IGNORE).sum())}


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_ranks_get_equally_many_items_that_are_those_of_one(folder: Path, ranks: int) -> None:
    whole = list(dataset(folder))
    parts = [list(dataset(folder, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert len({len(part) for part in parts}) == 1
    for step in range(whole[-1]["step"] + 1):
        alone = [item["tokens"] for item in whole if item["step"] == step]
        together = [
            item["tokens"]
            for part in parts
            for item in part
            if item["step"] == step and bool((item["documents"] >= 0).any())
        ]
        assert torch.equal(torch.cat(together), torch.cat(alone))
        targets = sum(int((item["targets"] != IGNORE).sum()) for part in parts for item in part if item["step"] == step)
        assert targets == next(item["step_targets"] for item in whole if item["step"] == step)


def test_resuming_after_every_item_yields_the_rest(folder: Path) -> None:
    data = dataset(folder, rank=1, ranks=2)
    items = list(data)
    states = [data.state_dict(items=0)]
    assert dataset(folder, rank=1, ranks=2).state_dict() == states[0]
    states += [data.state_dict() for _ in data]
    assert len(states) == len(items) + 1
    for number, state in enumerate(states):
        assert data.state_dict(items=number) == state
        again = dataset(folder, rank=1, ranks=2)
        again.load_state_dict(json.loads(json.dumps(state)))
        assert again.state_dict() == state
        assert same(list(again), items[number:])


def test_after_a_whole_step_other_ranks_and_sizes_may_resume(folder: Path) -> None:
    data = dataset(folder)
    for item in data:
        if item["step"] == 3 and item["is_last"]:
            break
    state = data.state_dict()
    assert state["items"] == 0
    wanted = [item["tokens"] for item in dataset(folder) if item["step"] > 3]
    for ranks, rows in ((1, 5), (1, 1)):
        other = dataset(folder, micro_batch_rows=rows, ranks=ranks)
        other.load_state_dict(state)
        tokens = [item["tokens"] for item in other]
        assert [row.tolist() for part in tokens for row in part] == [row.tolist() for part in wanted for row in part]
    inside = state | {"items": 2}
    with pytest.raises(UserError, match="2 items into a step that has 1"):
        dataset(folder, micro_batch_rows=99).load_state_dict(inside)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_workers_share_the_items_and_each_resumes_from_its_own_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    whole = list(dataset(folder))
    for worker in range(workers):
        monkeypatch.setattr(
            module, "get_worker_info", lambda worker=worker: SimpleNamespace(id=worker, num_workers=workers)
        )
        data = pickle.loads(pickle.dumps(dataset(folder)))
        mine = whole[worker::workers]
        states = [data.state_dict() for _ in data]
        assert same(list(data), mine)
        for number, state in list(enumerate(states))[::5]:
            again = dataset(folder)
            again.load_state_dict(state)
            assert same(list(again), mine[number + 1 :])
            # Asked before it yielded anything, it says the same.
            assert again.state_dict()["items"] >= 0


def test_a_worker_reads_no_item_of_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    batch = Stream.batch
    monkeypatch.setattr(Stream, "batch", lambda stream, step, rows: read.append(step) or batch(stream, step, rows))
    monkeypatch.setattr(module, "get_worker_info", lambda: SimpleNamespace(id=1, num_workers=3))
    assert len(list(dataset(folder))) == len(read)


def test_a_loader_with_workers_keeps_the_order(folder: Path) -> None:
    data = dataset(folder)
    whole = list(data)
    assert same(list(DataLoader(data, batch_size=None, num_workers=2)), whole)
    data.load_state_dict(data.state_dict(items=5))
    assert same(list(DataLoader(data, batch_size=None, num_workers=2)), whole[5:])


def test_exact_epochs_are_counted_when_it_is_opened(tmp_path: Path) -> None:
    phases = [{key: value for key, value in phase.items() if key not in ("tokens", "weights")} for phase in PHASES]
    phases = [phase | {"share": share} for phase, share in zip(phases, (0.3, 0.3, 0.4), strict=True)]
    data = dataset(write_run(tmp_path / "run", phases=phases, exact_epochs=1, documents=60))
    shards = ShardSet.open(data.folder / "shards")
    targets = sum(int((item["targets"] != IGNORE).sum()) for item in data)
    assert targets == sum(shards.token_count(d) - shards.documents(d) for d in shards.domains)


def test_mistakes_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="rank 2 is not one of 2 ranks"):
        dataset(folder, rank=2, ranks=2)
    with pytest.raises(IncompleteError, match="not finished"):
        dataset(tmp_path)
    with pytest.raises(UserError, match="with seed 0"):
        dataset(folder, seed=1).load_state_dict(dataset(folder).state_dict())


def test_a_model_of_hugging_face_gets_the_loss_of_each_document_alone(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    model = transformers.LlamaForCausalLM(config).eval()
    item = next(iter(dataset(folder)))
    inputs = transformers_inputs([item])
    with torch.no_grad():
        found = float(model(**inputs).loss)
        total = count = 0.0
        for tokens, targets, documents in zip(item["tokens"], item["targets"], item["documents"], strict=True):
            for document in range(int(documents.max()) + 1):
                inside = documents == document
                logits = model(input_ids=tokens[inside][None]).logits[0]
                losses = torch.nn.functional.cross_entropy(logits[:-1], targets[inside][:-1], reduction="sum")
                total, count = total + float(losses), count + int(inside.sum()) - 1
    assert found == pytest.approx(total / count, rel=1e-5)
    assert int((inputs["labels"] != IGNORE).sum()) == count
