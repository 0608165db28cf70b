from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from shards.reader import ShardSet
from shards.schedule.branch import branch
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from tests.shards.small_shards import flip, random_lengths, shards_of_lengths, tokens_of, url_of
from tests.trainer.tracing import Token, count_tokens, every_token, place_of
from trainer import cursor
from trainer.batch import Batch, StepPlan
from trainer.kept_states import KeptStates
from trainer.stream import Stream, check_resolved_on, fit

RATE = {"shape": "constant", "start": 1e-3}


@pytest.fixture(autouse=True)
def _several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its usual size, one group would hold all of these few documents."""
    monkeypatch.setattr(cursor, "MAX_GROUP_ROWS", 0)


def schedule_for(shards: ShardSet, phases: list[dict[str, Any]], **totals: Any) -> Schedule:
    full = [{"name": str(index), "learning_rate": RATE, **phase} for index, phase in enumerate(phases)]
    settings = ScheduleSettings.model_validate({"phases": full, "default_max_epochs": 50, **totals})
    return resolve(settings, shards.catalog.tokens_per_domain())


GROWING = [
    {"context_tokens": 16, "batch_tokens": 64, "share": 0.3},
    {"context_tokens": 48, "batch_tokens": 96, "share": 0.3},
    {"context_tokens": 128, "batch_tokens": 256, "share": 0.4},
]


@st.composite
def epochs(draw: st.DrawFn) -> tuple[int, dict[str, int], list[dict[str, Any]], int]:
    domains = {f"d{i}": draw(st.integers(1, 300)) for i in range(draw(st.integers(1, 3)))}
    contexts = draw(st.lists(st.sampled_from([8, 16, 24, 64, 128]), min_size=1, max_size=4))
    phases = [
        {"context_tokens": c, "batch_tokens": c * draw(st.integers(1, 4)), "share": 1 / len(contexts)} for c in contexts
    ]
    return draw(st.integers(0, 99)), domains, phases, draw(st.integers(1, 2))


@given(case=epochs())
@settings(max_examples=20, deadline=None)
def test_exact_epochs_serve_every_token_exactly_so_often(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[int, dict[str, int], list[dict[str, Any]], int]
) -> None:
    seed, domains, phases, times = case
    shards = shards_of_lengths(tmp_path_factory.mktemp("s"), random_lengths(seed, domains))
    resolved = schedule_for(shards, phases, exact_epochs=times)
    try:
        schedule = fit(shards, resolved, seed)
    except UserError:
        # Some batch is larger than its phase's share of so few documents.
        assert sum(shards.token_count(name) for name in domains) * times < 8 * sum(s["batch_tokens"] for s in phases)
        return
    stream = Stream(shards, schedule, seed)
    seen: Counter[Token] = Counter()
    for step in range(schedule.steps):
        plan = stream.plan(step)
        count_tokens(plan, seen)
        padding = np.flatnonzero(plan.domain < 0)
        assert not len(padding) or (step == schedule.steps - 1 and padding[0] > 0)
    assert seen == every_token(shards, times)
    assert stream.done
    assert schedule.at(schedule.tokens).step == schedule.steps


def test_an_epoch_of_several_groups_across_switches_is_exact(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(1, {"web": 1_500, "code": 400}))
    schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), 3)
    stream = Stream(shards, schedule, 3)
    seen: Counter[Token] = Counter()
    switched_inside = 0
    for step in range(schedule.steps):
        count_tokens(stream.plan(step), seen)
        switched_inside += any(len(domain[4]) > 1 for domain in stream.state()["domains"].values())
    assert seen == every_token(shards)
    assert switched_inside, "no context switch fell inside a group, so this test shows nothing"


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
    shards = shards_of_lengths(tmp_path, random_lengths(4, {"web": 180, "code": 150}))
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


@pytest.mark.parametrize("every", [1, 3, 1_000])
def test_seeking_plans_no_more_than_lies_behind_a_kept_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(KeptStates.__init__, "__kwdefaults__", {"writes": True, "every": every})
    shards = shards_of_lengths(tmp_path, random_lengths(4, {"web": 180, "code": 150}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 11, keep=tmp_path / "states")
    batches = [stream.batch(step) for step in range(schedule.steps)]
    later = Stream(shards, schedule, 11, keep=tmp_path / "states", writes=False)
    planned: list[int] = []
    for one in (stream, later):
        plan_next = one._next
        monkeypatch.setattr(one, "_next", lambda one=one, plan=plan_next: planned.append(one.step) or plan())
        for step in (schedule.steps - 1, 0, 7, 3, 3, 4, 9, 2):
            planned.clear()
            where = one.step
            assert same(one.batch(step), batches[step])
            known = max(step // every * every, where if where <= step else 0)
            assert len(planned) <= step - known + 1
        one.seek(schedule.steps)
    assert stream.state() == later.state()


def test_exact_epochs_are_counted_once_for_the_same_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(1, {"web": 300}))
    resolved, keep = schedule_for(shards, GROWING, exact_epochs=1), tmp_path / "fitted"
    counted: list[int] = []
    seek = Stream.seek
    monkeypatch.setattr(Stream, "seek", lambda stream, step: counted.append(step) or seek(stream, step))
    fitted = fit(shards, resolved, 3, keep=keep)
    assert counted
    counted.clear()
    assert fit(shards, resolved, 3, keep=keep) == fitted
    assert not counted
    for other in ({"seed": 4}, {"seed": 3, "window_shards": 1}):
        assert fit(shards, resolved, **other, keep=keep) == fit(shards, resolved, **other)
    assert len(list(keep.glob("*.json"))) == 3
    for path in keep.glob("*.json"):
        good = path.read_bytes()
        flip(path)
        counted.clear()
        assert fit(shards, resolved, 3, keep=keep) == fitted
        if counted:
            assert path.read_bytes() == good
            break
    else:
        raise AssertionError("no file was read again, so this test shows nothing")


def branch_of(parent: Schedule, of: ScheduleSettings, step: int, shards: ShardSet, **changes: Any) -> Any:
    named = {f"phases.{phase.name}.{key}": value for phase in of.phases for key, value in changes.items()}
    # Only what is still ahead may change.
    current = parent.at_step(step).name
    order = [phase.name for phase in of.phases]
    ahead = {key: value for key, value in named.items() if order.index(key.split(".")[1]) > order.index(current)}
    return branch(parent, of, step, ahead, shards.catalog.tokens_per_domain())


@given(seed=st.integers(0, 50), first=st.integers(0, 30), second=st.integers(0, 39), cut=st.integers(0, 49))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_branches_keep_the_past_and_resume_from_every_step(
    tmp_path_factory: pytest.TempPathFactory, seed: int, first: int, second: int, cut: int
) -> None:
    shards = shards_of_lengths(tmp_path_factory.mktemp("s"), random_lengths(seed, {"web": 180, "code": 150}))
    full = [{"name": str(index), "learning_rate": RATE, **phase} for index, phase in enumerate(MIXED)]
    of = ScheduleSettings.model_validate({"phases": full, "default_max_epochs": 50})
    parent = resolve(of, shards.catalog.tokens_per_domain())
    once_of, once = branch_of(parent, of, first, shards, weights={"web": 0.2, "code": 0.8})
    _, twice = branch_of(once, once_of, max(first, second), shards, weights={"web": 0.5, "code": 0.5})
    streams = [Stream(shards, schedule, 11) for schedule in (parent, once, twice)]
    plans, states = [], []
    for step in range(twice.steps):
        states.append(streams[2].state())
        plans.append(streams[2].plan(step))
        if step < max(first, second):
            assert same_plan(plans[-1], streams[1].plan(step))
        if step < first:
            assert same_plan(plans[-1], streams[0].plan(step))
    seen: Counter[Token] = Counter()
    for plan in plans:
        count_tokens(plan, seen)
    for domain in shards.domains:
        epoch = streams[2].state()["domains"][domain][1]
        assert {seen[key] for key in every_token(shards) if key[0] == domain} <= {epoch, epoch + 1}
    cut = min(cut, twice.steps - 1)
    resumed = Stream(shards, twice, 11, state=json.loads(json.dumps(states[cut])))
    sought = Stream(shards, twice, 11)
    for step in range(cut, min(cut + 3, twice.steps)):
        assert same_plan(resumed.plan(step), plans[step])
        assert same_plan(sought.plan(step), plans[step])
    # A branch resumes from what its parent saved at the step that it begins after, and from nothing later.
    streams[0].seek(first)
    assert same_plan(Stream(shards, once, 11, state=streams[0].state()).plan(first), streams[1].plan(first))
    if once.digest != parent.digest and first + 1 < parent.steps:
        streams[0].seek(first + 1)
        with pytest.raises(UserError, match="with schedule"):
            Stream(shards, once, 11, state=streams[0].state())


def same_plan(one: StepPlan, two: StepPlan) -> bool:
    names = ("row", "column", "domain", "document", "start", "length", "last")
    return np.array_equal(one.domain, two.domain) and all(
        np.array_equal(getattr(one.placed, name), getattr(two.placed, name)) for name in names
    )


def test_a_branch_follows_its_weights_from_where_it_begins(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(8, {"web": 300, "code": 200}))
    phase = {"name": "0", "context_tokens": 16, "batch_tokens": 64, "tokens": 6_400, "learning_rate": RATE}
    phase["weights"] = {"web": 1.0, "code": 0.0}
    of = ScheduleSettings.model_validate({"phases": [phase], "default_max_epochs": 50})
    parent = resolve(of, shards.catalog.tokens_per_domain())
    changes = {"phases.0.tokens": 3_200} | {
        f"phases.even.{key}": value
        for key, value in {**phase, "weights": {"web": 1, "code": 1}}.items()
        if key != "name"
    }
    _, schedule = branch(parent, of, 50, changes, shards.catalog.tokens_per_domain())
    stream = Stream(shards, schedule, 2)
    rows = [int((stream.plan(step).domain == 0).sum()) for step in range(schedule.steps)]
    assert rows[:50] == [0] * 50
    assert set(rows[50:]) == {2}


def test_epochs_of_a_mixture_follow_each_other(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(4, {"web": 180, "code": 60}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 11)
    seen: Counter[Token] = Counter()
    for step in range(schedule.steps):
        count_tokens(stream.plan(step), seen)
    state = stream.state()["domains"]
    for domain in shards.domains:
        _, epoch, *_ = state[domain]
        times = [seen[key] for key in every_token(shards) if key[0] == domain]
        # In epoch e every token was served e times before, and some of this epoch's once more.
        assert set(times) <= {epoch, epoch + 1}
    assert state["code"][1] >= 1, "code never began a second epoch, so this test shows too little"


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_ranks_share_the_same_micro_batches(tmp_path: Path, ranks: int) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(6, {"web": 120, "code": 80}))
    schedule = schedule_for(shards, MIXED)
    alone = Stream(shards, schedule, 1)
    streams = [Stream(shards, schedule, 1) for _ in range(ranks)]
    for step in range(0, schedule.steps, 3):
        whole = alone.batch(step)
        wanted = [alone.batch(step, part) for part in alone.rows_for(step, 3, 0, 1)]
        parts = [
            stream.batch(step, part)
            for rank, stream in enumerate(streams)
            for part in stream.rows_for(step, 3, rank, ranks)
        ]
        assert len(parts) == len(wanted)
        assert all(same(one, two) for one, two in zip(parts, wanted, strict=True))
        assert np.array_equal(np.concatenate([part.tokens for part in parts]), whole.tokens)
        assert np.array_equal(np.concatenate([part.targets for part in parts]), whole.targets)
        assert all(stream.state() == alone.state() for stream in streams)


def test_domains_follow_their_weights_at_every_step(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(8, {"web": 300, "code": 200}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 2)
    given_tokens = np.zeros(2)
    for step in range(schedule.steps):
        plan = stream.plan(step)
        given_tokens += np.bincount(plan.domain, minlength=2) * plan.context_tokens
        ideal = schedule.ideal_tokens(schedule.tokens_before(step + 1))
        assert np.abs(given_tokens - ideal).max() <= plan.context_tokens + 64


def test_a_slot_leads_back_to_its_url(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(8, {"web": 30, "code": 20}))
    stream = Stream(shards, schedule_for(shards, MIXED), 2)
    batch = stream.batch(3)
    place = place_of(batch.plan, 2, 5)
    assert place is not None
    domain, document, token = place
    found = shards.trace(domain, "train", document, token)
    assert found["doc_id"] == 1_000 * found["source_index"] + found["row"]
    assert found["url"] == url_of(domain, found["doc_id"])
    assert tokens_of(shards, domain, "train", document)[token] == batch.tokens[2, 5]


def test_another_seed_gives_another_order_of_the_same(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(1, {"web": 400}))
    seen = []
    for seed in (1, 2):
        schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), seed)
        stream = Stream(shards, schedule, seed)
        seen.append([stream.batch(step).plan.placed.document.tolist() for step in range(3)])
    assert seen[0] != seen[1]


def test_held_out_documents_are_never_served(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(3, {"web": 60}), held_out={"web": [4, 9, 20]})
    schedule = fit(shards, schedule_for(shards, GROWING, exact_epochs=1), 5)
    stream = Stream(shards, schedule, 5)
    batches = [stream.batch(step) for step in range(schedule.steps)]
    served = Counter(int(token) for batch in batches for token in batch.tokens[batch.document >= 0])
    texts = [tokens_of(shards, "web", "train", document) for document in range(shards.documents("web"))]
    assert served == Counter(int(token) for text in texts for token in text)


def test_states_of_another_run_are_refused(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(1, {"web": 50, "code": 50}))
    schedule = schedule_for(shards, MIXED)
    state = Stream(shards, schedule, 1).state()
    with pytest.raises(UserError, match="seed 1"):
        Stream(shards, schedule, 2, state=state)
    with pytest.raises(UserError, match="with schedule"):
        Stream(shards, schedule_for(shards, MIXED[:2]), 1, state=state)
    with pytest.raises(UserError, match="not the state of a stream: step"):
        Stream(shards, schedule, 1, state={**state, "step": "x"})
    with pytest.raises(UserError, match="window_shards 128"):
        Stream(shards, schedule, 1, window_shards=2, state=state)


def test_a_schedule_of_other_shards_is_refused(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(1, {"web": 50, "code": 50}))
    schedule = schedule_for(shards, MIXED)
    check_resolved_on(schedule, shards)
    other = tmp_path / "other"
    other.mkdir()
    others = shards_of_lengths(other, random_lengths(2, {"web": 50, "code": 50}))
    with pytest.raises(UserError, match="resolved on other shards") as caught:
        check_resolved_on(schedule, others)
    assert caught.value.place == str(other)
    with pytest.raises(UserError, match="resolved on other shards"):
        Stream(others, schedule, 1)


def test_mistakes_of_length_are_refused(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, random_lengths(1, {"web": 50, "code": 50}))
    schedule = schedule_for(shards, MIXED)
    stream = Stream(shards, schedule, 1)
    for step in (-1, schedule.steps):
        with pytest.raises(ValueError, match="so no step"):
            stream.plan(step)
    with pytest.raises(UserError, match="not been counted yet"):
        Stream(shards, schedule_for(shards, GROWING, exact_epochs=1), 1)
    greedy = [{**GROWING[0], "batch_tokens": 160_000}, {**GROWING[1], "share": 0.7}]
    with pytest.raises(UserError, match="use up all documents"):
        fit(shards, schedule_for(shards, greedy, exact_epochs=1), 1)
