from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.catalog import CATALOG_NAME, DomainShards, ShardCatalog, describe
from shards.errors import UserError
from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule, ScheduleSettings
from shards.writer import ShardWriter
from trainer.batch import IGNORE, Batch, micro_batches
from trainer.order import DocumentOrder
from trainer.stream import Stream, fit

END = 0
RATE = {"shape": "constant", "start": 1e-3}
Lengths = dict[str, list[list[int]]]
"""Per domain its shards, each a list of document lengths, end-of-text included."""


def build(folder: Path, lengths: Lengths, *, held_out: dict[str, list[int]] | None = None) -> ShardSet:
    """Write shards whose tokens are unlike each other, so that a wrong one is seen."""
    generator = np.random.default_rng(7)
    domains: dict[str, DomainShards] = {}
    for domain, shards in lengths.items():
        parts: dict[str, list[Any]] = {"train": [], "held_out": []}
        jobs = [("train", shard) for shard in shards]
        jobs += [("held_out", held_out[domain])] if held_out and domain in held_out else []
        for index, (split, rows) in enumerate(jobs):
            target = ShardWriter(
                folder,
                domain=domain,
                split=split,
                vocab_size=60_000,
                end_of_text=END,
                tokenizer_digest="t",
                name=f"{domain}{index}",
            )
            ids = np.arange(len(rows))
            batch = pa.RecordBatch.from_pydict(
                {
                    "doc_id": pa.array(ids + index * 1_000),
                    "url": pa.array([f"https://{domain}.example/{index}/{i}" for i in ids], pa.string()),
                    "content_hash": pa.nulls(len(rows), pa.binary(16)),
                    "language": pa.array(["en"] * len(rows), pa.string()),
                    "source_index": pa.array([index] * len(rows), pa.int32()),
                    "offset": pa.array(ids),
                }
            )
            offsets = np.cumsum([0, *(n - 1 for n in rows)], dtype=np.int64)
            target.add(generator.integers(1, 60_000, int(offsets[-1])), offsets, batch)
            files = target.close()
            entry = describe(files, tokens=files.tokens_path.name, documents=files.documents_path.name)
            parts[split].append(entry)
        domains[domain] = DomainShards(train=tuple(parts["train"]), held_out=tuple(parts["held_out"]))
    catalog = ShardCatalog(token_dtype="uint16", vocab_size=60_000, end_of_text=END, tokenizer="t", domains=domains)
    (folder / CATALOG_NAME).write_text(catalog.to_json())
    return ShardSet.open(folder)


def random_lengths(seed: int, domains: dict[str, int], median: float = 12) -> Lengths:
    generator = np.random.default_rng(seed)
    lengths: Lengths = {}
    for domain, documents in domains.items():
        drawn = np.maximum(1, generator.lognormal(np.log(median), 1.1, documents)).astype(int).tolist()
        cuts = sorted(generator.integers(0, documents, 2).tolist())
        lengths[domain] = [drawn[: cuts[0]], drawn[cuts[0] : cuts[1]], drawn[cuts[1] :]]
    return lengths


def schedule_for(shards: ShardSet, stages: list[dict[str, Any]], **totals: Any) -> Schedule:
    full = [{"name": str(index), "learning_rate": RATE, **stage} for index, stage in enumerate(stages)]
    settings = ScheduleSettings.model_validate({"stages": full, "default_max_epochs": 50, **totals})
    return resolve(settings, shards.catalog.tokens_per_domain())


GROWING = [
    {"context_tokens": 16, "batch_tokens": 64, "share": 0.3},
    {"context_tokens": 48, "batch_tokens": 96, "share": 0.3},
    {"context_tokens": 128, "batch_tokens": 256, "share": 0.4},
]


def count_tokens(batch: Batch, seen: Counter[tuple[str, int, int]]) -> None:
    """Count every slot by what it traces back to, and check the slot's token on the way."""
    placed = batch.plan.placed
    for i in range(len(placed.row)):
        domain = batch.plan.domains[int(placed.domain[i])]
        first, length = int(placed.start[i]), int(placed.length[i])
        seen.update((domain, int(placed.document[i]), token) for token in range(first, first + length))


def every_token(shards: ShardSet, times: int = 1) -> Counter[tuple[str, int, int]]:
    return Counter(
        {
            (domain, document, token): times
            for domain in shards.domains
            for document, length in enumerate(shards.lengths(domain).tolist())
            for token in range(length)
        }
    )


@st.composite
def epochs(draw: st.DrawFn) -> tuple[int, dict[str, int], list[dict[str, Any]], int]:
    domains = {f"d{i}": draw(st.integers(1, 300)) for i in range(draw(st.integers(1, 3)))}
    contexts = draw(st.lists(st.sampled_from([8, 16, 24, 64, 128]), min_size=1, max_size=4))
    stages = [
        {"context_tokens": c, "batch_tokens": c * draw(st.integers(1, 4)), "share": 1 / len(contexts)} for c in contexts
    ]
    return draw(st.integers(0, 99)), domains, stages, draw(st.integers(1, 2))


@given(case=epochs())
@settings(max_examples=20, deadline=None)
def test_exact_epochs_serve_every_token_exactly_so_often(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[int, dict[str, int], list[dict[str, Any]], int]
) -> None:
    seed, domains, stages, times = case
    shards = build(tmp_path_factory.mktemp("s"), random_lengths(seed, domains))
    resolved = schedule_for(shards, stages, exact_epochs=times)
    try:
        schedule = fit(shards, resolved, seed)
    except UserError:
        # Some batch is larger than its stage's share of so few documents.
        assert sum(shards.token_count(name) for name in domains) * times < 8 * sum(s["batch_tokens"] for s in stages)
        return
    stream = Stream(shards, schedule, seed)
    seen: Counter[tuple[str, int, int]] = Counter()
    for step in range(schedule.steps):
        plan = stream.plan(step)
        count_tokens(Batch(plan, np.empty((0, 0)), np.empty((0, 0))), seen)
        padding = np.flatnonzero(plan.domain < 0)
        assert not len(padding) or (step == schedule.steps - 1 and padding[0] > 0)
    assert seen == every_token(shards, times)
    assert stream.done
    assert schedule.at(schedule.tokens).step == schedule.steps


def test_an_epoch_of_several_groups_across_switches_is_exact(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(1, {"web": 1_500, "code": 400}))
    schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), 3)
    stream = Stream(shards, schedule, 3)
    seen: Counter[tuple[str, int, int]] = Counter()
    switched_inside = 0
    for step in range(schedule.steps):
        count_tokens(stream.batch(step), seen)
        switched_inside += any(len(domain[4]) > 1 for domain in stream.state()["domains"].values())
    assert seen == every_token(shards)
    assert switched_inside, "no context switch fell inside a group, so this test shows nothing"


def test_arrays_say_what_the_shards_hold(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(2, {"web": 200, "code": 90}))
    schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), 5)
    stream = Stream(shards, schedule, 5)
    targets: Counter[tuple[str, int, int]] = Counter()
    for step in range(schedule.steps):
        batch = stream.batch(step)
        point = schedule.at_step(step)
        shape = (point.rows, point.context_tokens)
        assert batch.tokens.shape == batch.targets.shape == batch.document.shape == batch.positions.shape == shape
        assert (batch.document >= 0).sum() == batch.plan.placed.length.sum()
        for row in range(point.rows):
            for column in range(point.context_tokens):
                place = batch.trace(row, column)
                target = int(batch.targets[row, column])
                if place is None:
                    assert (batch.document[row, column], batch.tokens[row, column], target) == (-1, END, IGNORE)
                    continue
                domain, document, token = place
                text = shards.tokens(domain, "train", document)
                assert domain == schedule.domains[batch.domain[row]]
                assert batch.tokens[row, column] == text[token]
                if token + 1 < len(text):
                    assert target == text[token + 1]
                    targets[domain, document, token + 1] += 1
                else:
                    assert target == IGNORE
                begins = column == 0 or batch.document[row, column - 1] != batch.document[row, column]
                assert (batch.positions[row, column] == 0) == begins
                if not begins:
                    assert batch.positions[row, column] == batch.positions[row, column - 1] + 1
    wanted = every_token(shards)
    assert targets == Counter({key: 1 for key in wanted if key[2] > 0})


def same(one: Batch, two: Batch) -> bool:
    pairs = ((one.tokens, two.tokens), (one.targets, two.targets), (one.domain, two.domain))
    return all(np.array_equal(a, b) for a, b in (*pairs, (one.document, two.document), (one.positions, two.positions)))


MIXED = [
    {"context_tokens": 16, "batch_tokens": 128, "tokens": 1_280, "weights": {"web": 0.7, "code": 0.3}},
    {"context_tokens": 32, "batch_tokens": 128, "tokens": 2_560, "weights": {"web": [0.7, 0.1], "code": [0.3, 0.9]}},
    {"context_tokens": 64, "batch_tokens": 256, "tokens": 2_560, "weights": {"code": 1.0}},
    {"context_tokens": 16, "batch_tokens": 64, "tokens": 640, "weights": {"web": 1.0}},
]


@pytest.mark.parametrize("window", [None, 1, 2])
def test_resuming_from_every_step_serves_the_same(tmp_path: Path, window: int | None) -> None:
    shards = build(tmp_path, random_lengths(4, {"web": 180, "code": 150}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 11, window_shards=window)
    states, batches = [], []
    for step in range(schedule.steps):
        states.append(json.dumps(stream.state()))
        assert len(states[-1]) < 1_000
        batches.append(stream.batch(step))
    for step, state in enumerate(states):
        resumed = Stream(shards, schedule, 11, window_shards=window, state=json.loads(state))
        assert resumed.step == step
        assert json.dumps(resumed.state()) == state
        assert same(resumed.batch(step), batches[step])
        if step + 1 < schedule.steps:
            assert json.dumps(resumed.state()) == states[step + 1]
            assert same(resumed.batch(step + 1), batches[step + 1])
    for step in (schedule.steps - 1, 0, 7, 3, 3):
        assert same(stream.batch(step), batches[step])


def test_epochs_of_a_mixture_follow_each_other(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(4, {"web": 180, "code": 60}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 11)
    seen: Counter[tuple[str, int, int]] = Counter()
    for step in range(schedule.steps):
        count_tokens(stream.batch(step), seen)
    state = stream.state()["domains"]
    for domain in shards.domains:
        _, epoch, *_ = state[domain]
        times = [seen[key] for key in every_token(shards) if key[0] == domain]
        # In epoch e every token was served e times before, and some of this epoch's once more.
        assert set(times) <= {epoch, epoch + 1}
    assert state["code"][1] >= 1, "code never began a second epoch, so this test shows too little"


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_share_the_same_micro_batches(tmp_path: Path, world: int) -> None:
    shards = build(tmp_path, random_lengths(6, {"web": 120, "code": 80}))
    schedule = schedule_for(shards, MIXED)
    alone = Stream(shards, schedule, 1)
    ranks = [Stream(shards, schedule, 1) for _ in range(world)]
    for step in range(0, schedule.steps, 3):
        whole = alone.batch(step)
        wanted = [alone.batch(step, part) for part in alone.rows_for(step, 3)]
        parts = [
            stream.batch(step, part)
            for rank, stream in enumerate(ranks)
            for part in stream.rows_for(step, 3, rank, world)
        ]
        assert len(parts) == len(wanted)
        assert all(same(one, two) for one, two in zip(parts, wanted, strict=True))
        assert np.array_equal(np.concatenate([part.tokens for part in parts]), whole.tokens)
        assert np.array_equal(np.concatenate([part.targets for part in parts]), whole.targets)
        assert all(stream.state() == alone.state() for stream in ranks)


@given(rows=st.integers(1, 50), size=st.integers(1, 9), world=st.integers(1, 9))
@settings(max_examples=60, deadline=None)
def test_micro_batches_cover_the_rows_once(rows: int, size: int, world: int) -> None:
    per_rank = [micro_batches(rows, size, rank, world) for rank in range(world)]
    covered = [row for parts in per_rank for part in parts for row in range(part.start, part.stop)]
    assert covered == list(range(rows))
    assert max(map(len, per_rank)) - min(map(len, per_rank)) <= 1
    assert per_rank[0]
    assert [part for parts in per_rank for part in parts] == micro_batches(rows, size)


def test_domains_follow_their_weights_at_every_step(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(8, {"web": 300, "code": 200}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 2)
    given_tokens = np.zeros(2)
    for step in range(schedule.steps):
        plan = stream.plan(step)
        given_tokens += np.bincount(plan.domain, minlength=2) * plan.context_tokens
        ideal = schedule.ideal_tokens(schedule.tokens_before(step + 1))
        assert np.abs(given_tokens - ideal).max() <= plan.context_tokens + 64


def test_a_slot_leads_back_to_its_url(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(8, {"web": 30, "code": 20}))
    stream = Stream(shards, schedule_for(shards, MIXED), 2)
    batch = stream.batch(3)
    place = batch.trace(2, 5)
    assert place is not None
    found = shards.trace(place[0], "train", place[1], place[2])
    assert found["url"].startswith(f"https://{found['domain']}.example/{found['source_index']}/")
    row = shards.tokens(found["domain"], "train", place[1])
    assert row[found["token"]] == batch.tokens[2, 5]
    with pytest.raises(IndexError):
        batch.trace(0, 16)


def test_another_seed_gives_another_order_of_the_same(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(1, {"web": 400}))
    seen = []
    for seed in (1, 2):
        schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), seed)
        stream = Stream(shards, schedule, seed)
        seen.append([stream.batch(step).plan.placed.document.tolist() for step in range(3)])
    assert seen[0] != seen[1]


def test_held_out_documents_are_never_served(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(3, {"web": 60}), held_out={"web": [4, 9, 20]})
    schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), 5)
    stream = Stream(shards, schedule, 5)
    tokens = [stream.batch(step) for step in range(schedule.steps)]
    served = Counter(int(token) for batch in tokens for token in batch.tokens[batch.document >= 0])
    texts = [shards.tokens("web", "train", document) for document in range(shards.documents("web"))]
    assert served == Counter(int(token) for text in texts for token in text)


def test_states_of_another_run_are_refused(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(1, {"web": 50, "code": 50}))
    schedule = schedule_for(shards, MIXED)
    state = Stream(shards, schedule, 1).state()
    with pytest.raises(UserError, match="seed 1"):
        Stream(shards, schedule, 2, state=state)
    with pytest.raises(UserError, match="with schedule"):
        Stream(shards, schedule_for(shards, MIXED[:2]), 1, state=state)
    with pytest.raises(UserError, match="not a stream's state: step"):
        Stream(shards, schedule, 1, state={**state, "step": "x"})
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(UserError, match="other shards"):
        Stream(build(other, random_lengths(2, {"web": 50, "code": 50})), schedule, 1)


def test_mistakes_of_length_are_refused(tmp_path: Path) -> None:
    shards = build(tmp_path, random_lengths(1, {"web": 50, "code": 50}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 1)
    for step in (-1, schedule.steps):
        with pytest.raises(ValueError, match="so none"):
            stream.plan(step)
    with pytest.raises(UserError, match="not counted yet"):
        Stream(shards, schedule_for(shards, GROWING, exact_epochs=1), 1)
    greedy = [{**GROWING[0], "batch_tokens": 160_000}, {**GROWING[1], "share": 0.7}]
    with pytest.raises(UserError, match="take all documents"):
        fit(shards, schedule_for(shards, greedy, exact_epochs=1), 1)


@given(
    rows=st.lists(st.integers(0, 30), max_size=8),
    window=st.one_of(st.none(), st.integers(1, 9)),
    cuts=st.lists(st.integers(0, 240), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_an_epoch_reads_every_document_once(rows: list[int], window: int | None, cuts: list[int]) -> None:
    order = DocumentOrder(np.array(rows, np.int64), 5, window)
    assert order.documents == sum(rows)
    bounds = [0, *sorted(min(cut, sum(rows)) for cut in cuts), sum(rows)]
    parts = [order(start, stop) for start, stop in itertools.pairwise(bounds)]
    documents = np.concatenate(parts)
    assert sorted(documents.tolist()) == list(range(sum(rows)))
    assert documents.tolist() == order(0, sum(rows)).tolist()
    if window == 1:
        shard = np.searchsorted(np.cumsum(rows), documents, side="right")
        assert int((np.diff(shard) != 0).sum()) == max(0, np.count_nonzero(rows) - 1)
