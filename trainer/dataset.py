"""The stream as a dataset of PyTorch: the same rows for a training loop of one's own, on any number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from shards.errors import UserError
from shards.finished import SCHEDULE_FILE, require_finished
from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from trainer.batch import IGNORE, Batch
from trainer.micro_batch import filled, most_per_rank
from trainer.stream import Stream, fit

Item = dict[str, Any]


class StreamDataset(IterableDataset[Item]):
    """Micro-batches of a finished run's schedule, in order; use it with ``DataLoader(dataset, batch_size=None)``.

    An item is one micro-batch: ``tokens`` and ``targets``, int64 of shape (rows, context), ``positions`` and
    ``documents``, int32 of the same shape (see ``Batch``), ``step``, ``is_last`` (True for the last item of a step),
    and ``step_targets``, the number of targets of the step on all ranks. Dividing the sum of losses by
    ``step_targets`` makes gradients that do not depend on the number of ranks, when they are summed over ranks.

    All ranks get equally many items: some of the last are masked, which means they have no target.

    With the workers of a ``DataLoader``, each reads every so many items, and the order stays the same.

    Args:
        folder: a folder that ``headrace run`` finished.
        micro_batch_rows: rows of an item; the last of a step may have fewer.
        rank: which of ``ranks`` ranks this is.
        ranks: number of ranks.
        seed: seed of the order of documents and rows.
        window_shards: see ``DocumentOrder``.

    Raises:
        IncompleteError: if the run is not finished.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        micro_batch_rows: int,
        rank: int = 0,
        ranks: int = 1,
        seed: int = 0,
        window_shards: int | None = None,
    ) -> None:
        if not 0 <= rank < ranks:
            raise ValueError(f"rank {rank} is not one of {ranks} ranks")
        self.folder, self.seed, self.window_shards = Path(folder), seed, window_shards
        self.micro_batch_rows, self.rank, self.ranks = micro_batch_rows, rank, ranks
        require_finished(self.folder)
        path = self.folder / SCHEDULE_FILE
        schedule = Schedule.from_json(path.read_bytes(), str(path))
        shards = self._shards()
        self.vocabulary = shards.catalog.vocab_size
        self.schedule = fit(shards, schedule, seed, window_shards=window_shards, keep=self.folder / "fitted")
        # Where to start: a stream's state, items of its step to leave out, and for a loader's worker, items more.
        self._start: Mapping[str, Any] | None = None
        self._skip = 0
        self._skip_of_worker: int | None = None
        # Where the item after the last one that was yielded is, and how many more a worker leaves to the others.
        self._next: tuple[dict[str, Any], int] | None = None
        self._own = 0

    def __iter__(self) -> Iterator[Item]:
        worker = get_worker_info()
        own, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        self._own = own if self._skip_of_worker is None else self._skip_of_worker
        return self._items(self._own, workers)

    def state_dict(self, items: int | None = None) -> dict[str, Any]:
        """Return where the next item is, as plain values.

        Args:
            items: items that were consumed since iteration began. Needed where workers of a ``DataLoader`` iterate,
                because this process does not see how far they are.
        """
        if items is not None:
            state, at = self._after(items)
            return {"stream": state, "items": at, "worker": None}
        state, at = self._next or self._after(0)
        return {"stream": dict(state), "items": at, "worker": None if get_worker_info() is None else self._own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a dataset was when it returned this state, on any number of ranks if a step had ended.

        Raises:
            UserError: if the state is of another run, seed or window.
        """
        stream = self._stream(state["stream"])
        if state["items"] and state["items"] >= self._items_of(stream.step):
            raise UserError(
                f"the state is {state['items']} items into a step that has {self._items_of(stream.step)}",
                place="load_state_dict",
                remedy="Save states after the last item of a step, to resume with other ranks or micro-batches",
            )
        self._start, self._skip, self._skip_of_worker = dict(state["stream"]), state["items"], state["worker"]
        self._next = None

    def _shards(self) -> ShardSet:
        return ShardSet.open(self.folder / "shards")

    def _stream(self, state: Mapping[str, Any] | None) -> Stream:
        return Stream(self._shards(), self.schedule, self.seed, window_shards=self.window_shards, state=state)

    def _items_of(self, step: int) -> int:
        """Return how many items a step has on each rank."""
        if step >= self.schedule.steps:
            return 0
        return most_per_rank(self.schedule.at_step(step).rows, self.micro_batch_rows, self.ranks)

    def _after(self, items: int) -> tuple[dict[str, Any], int]:
        """Return the state of the stream before the step of an item, counted from the start, and its place in it."""
        stream = self._stream(self._start)
        step, at = stream.step, self._skip + items
        while step < self.schedule.steps and at >= self._items_of(step):
            at -= self._items_of(step)
            step += 1
        stream.seek(step)
        return stream.state(), at if step < self.schedule.steps else 0

    def _items(self, own: int, workers: int) -> Iterator[Item]:
        """Yield every ``workers``-th item from the ``own``-th one on; the others are planned but not read."""
        stream, skip = self._stream(self._start), self._skip
        left = own
        for step in range(stream.step, self.schedule.steps):
            before = stream.state()
            plan = stream.plan(step)
            parts = stream.rows_for(step, self.micro_batch_rows, self.rank, self.ranks)
            count = self._items_of(step)
            for number in range(skip, count):
                if left:
                    left -= 1
                    continue
                left = self._own = workers - 1
                batches = [stream.batch(step, parts[number])] if number < len(parts) else []
                (batch,) = filled(batches, 1, plan.context_tokens)
                is_last = number == count - 1
                self._next = (stream.state(), 0) if is_last else (before, number + 1)
                yield _item(batch, step, plan.targets, is_last=is_last)
            skip = 0


def _item(batch: Batch, step: int, step_targets: int, *, is_last: bool) -> Item:
    tensors: Item = {
        "tokens": torch.from_numpy(batch.tokens),
        "targets": torch.from_numpy(batch.targets),
        "positions": torch.from_numpy(batch.positions),
        "documents": torch.from_numpy(batch.document),
    }
    return tensors | {"step": step, "is_last": is_last, "step_targets": step_targets}


def transformers_inputs(items: Sequence[Item]) -> dict[str, Any]:
    """Return one item as a causal language model of Hugging Face takes it: a ``data_collator`` for batches of 1.

    Their labels lie one place further on than targets. So the target of a row's last token, which a document that goes
    on in another row has, is left out. Documents are told apart by positions that begin again.
    """
    (item,) = items
    targets = item["targets"]
    labels = torch.full_like(targets, IGNORE)
    labels[:, 1:] = targets[:, :-1]
    positions = item["positions"].long()
    # With a cache, transformers takes positions for those in the cache, and lets documents see each other.
    return {"input_ids": item["tokens"], "labels": labels, "position_ids": positions, "use_cache": False}
