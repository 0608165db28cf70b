from __future__ import annotations

from pathlib import Path
from typing import Any

from shards.reader import ShardSet
from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings
from tests.shards.small_shards import shards_of_lengths
from trainer.padding import mostly_padding
from trainer.stream import Stream


def schedule_of(shards: ShardSet, *phases: dict[str, Any]) -> Schedule:
    full = [{"name": f"p{n}", "batch_tokens": 256, "learning_rate": {"start": 1e-3}, **p} for n, p in enumerate(phases)]
    settings = ScheduleSettings.model_validate({"phases": full, "default_max_epochs": 1e6})
    return resolve(settings, shards.catalog.tokens_per_domain())


def test_a_domain_of_two_tokens_is_told_of_with_what_its_weight_comes_to(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, {"tiny": [[2]], "web": [[20] * 400]})
    half = {"weights": {"tiny": 1, "web": 1}, "tokens": 25_600}
    schedule = schedule_of(shards, {**half, "context_tokens": 64}, {**half, "context_tokens": 2, "batch_tokens": 2})
    (told,) = mostly_padding(shards, schedule, 1)
    assert (told.phase, told.domain, told.weight, told.fill) == ("p0", "tiny", 0.5, 2 / 64)
    assert "97% of the rows of domain 'tiny' in phase 'p0' is padding" in str(told)
    assert "its 1 documents have 2 tokens, and a row has 64" in str(told)
    stream = Stream(shards, schedule, 1)
    plans = [stream.plan(step) for step in range(schedule.steps // 200)]
    slots = sum(int((plan.domain == 0).sum()) * 64 for plan in plans)
    used = sum(int(plan.placed.length[plan.placed.domain == 0].sum()) for plan in plans)
    assert used / slots == told.fill


def test_a_domain_without_weight_or_documents_is_no_matter(tmp_path: Path) -> None:
    shards = shards_of_lengths(tmp_path, {"tiny": [[2]], "none": [], "web": [[20] * 400]})
    phase = {"context_tokens": 64, "tokens": 2_560, "weights": {"web": 1, "tiny": [0, 0]}}
    assert mostly_padding(shards, schedule_of(shards, phase), 1) == []
