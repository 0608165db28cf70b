"""A schedule of three phases over four domains, as a recipe says it, and how to change it."""

from __future__ import annotations

from typing import Any

from shards.schedule.resolve import resolve
from shards.schedule.schedule import Schedule
from shards.schedule.settings import ScheduleSettings

HAVE = {"web_best": 30_000, "web_rest": 70_000, "code": 50_000, "books": 10_000}

BASE: dict[str, Any] = {
    "tokens": 160_000,
    "groups": {"web": ["web_best", "web_rest"]},
    "max_epochs": {"web": 2.0, "books": 4.0},
    "phases": [
        {
            "name": "base",
            "share": 0.7,
            "weights": {"web": 0.6, "code": 0.3, "books": 0.1},
            "context_tokens": 64,
            "batch_tokens": 512,
            "learning_rate": {"shape": "cosine", "start": 3e-3, "end": 1e-3, "warmup_tokens": 5_120},
        },
        {
            "name": "long",
            "share": 0.2,
            "weights": {"web": [0.6, 0.2], "code": [0.3, 0.4], "books": [0.1, 0.4]},
            "context_tokens": 256,
            "batch_tokens": 1_024,
            "rope": {"kind": "yarn"},
            "learning_rate": {"shape": "linear", "end": 5e-4},
        },
        {
            "name": "anneal",
            "share": 0.1,
            "weights": {"web_best": 0.5, "code": 0.5},
            "context_tokens": 256,
            "batch_tokens": 1_024,
            "rope": {"kind": "theta", "theta": 500_000},
            "learning_rate": {"shape": "one_minus_sqrt", "end": 0},
        },
    ],
}


def changed(**top: Any) -> dict[str, Any]:
    return {**BASE, **top}


def with_phase(index: int, **values: Any) -> dict[str, Any]:
    phases = [dict(phase) for phase in BASE["phases"]]
    phases[index].update(values)
    return {**BASE, "phases": [{k: v for k, v in phase.items() if v is not None} for phase in phases]}


def resolved(table: dict[str, Any] | None = None, have: dict[str, int] | None = None) -> Schedule:
    return resolve(ScheduleSettings.model_validate(table or BASE), have or HAVE)
