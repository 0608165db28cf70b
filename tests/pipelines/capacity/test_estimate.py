from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.capacity.estimate import (
    TEXT_PER_BYTE,
    estimate,
    kind_of,
)
from pipelines.plan import Plan
from pipelines.planning.sources import SOURCES, SourceTable
from pipelines.planning.splits import make_splits
from pipelines.recipe import Recipe, parse_recipe

GB = 10**9


def recipe_of(**tables: Any) -> Recipe:
    return parse_recipe({"sources": [{"glob": "*"}], **tables}, "here")


def plan_of(size: int, path: str = "a.jsonl", files: int = 1) -> Plan:
    each = size // files
    row = {"path": path, "begin": 0, "end": each, "size": each, "checksum": bytes(16)}
    sources = SourceTable(pa.Table.from_pylist([{"index": index, **row} for index in range(files)], SOURCES))
    splits = make_splits(sources, np.arange(files, dtype=np.int32), np.zeros(files, np.int32), recipe_of())
    return Plan(sources, splits)


def training(layers: int = 4, **settings: Any) -> Recipe:
    phase = {
        "name": "base",
        "tokens": 8192,
        "context_tokens": 1024,
        "batch_tokens": 8192,
        "learning_rate": {"start": 1e-3},
    }
    return recipe_of(model={"layers": layers}, training=settings, schedule={"phases": [phase]})


FIGURES = ("text_bytes", "documents", "disk_bytes", "worker_bytes", "driver_bytes", "curation_bytes")


@given(st.integers(0, 1 << 50), st.integers(0, 1 << 50), st.integers(1, 64), st.sampled_from(sorted(TEXT_PER_BYTE)))
def test_more_input_never_needs_less(one: int, other: int, workers: int, kind: str) -> None:
    small, large = (estimate(recipe_of(), plan_of(size, f"a.{kind}"), workers=workers) for size in sorted((one, other)))
    assert all(getattr(small, name) <= getattr(large, name) for name in FIGURES)


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 1 << 44))
def test_a_smaller_sample_never_needs_more(one: float, other: float, size: int) -> None:
    small, large = (estimate(recipe_of(sample=share), plan_of(size), workers=2) for share in sorted((one, other)))
    assert all(getattr(small, name) <= getattr(large, name) for name in FIGURES)


@given(
    st.integers(2, 64), st.integers(2, 64), st.integers(0, 1 << 40), st.integers(0, 1 << 34), st.integers(0, 1 << 30)
)
def test_more_workers_models_and_references_never_need_less(
    one: int, other: int, size: int, models: int, reference: int
) -> None:
    recipe = recipe_of(lm=[{"language": "en", "corpus": ["x"]}])
    low, high = sorted((one, other))
    least = estimate(recipe, plan_of(size), workers=low)
    most = estimate(recipe, plan_of(size), workers=high, model_bytes=models, reference_bytes=reference)
    assert all(getattr(least, name) <= getattr(most, name) for name in FIGURES)


@given(st.integers(1, 48), st.integers(1, 48), st.sampled_from([0, 1, 2, 3]), st.integers(1, 8))
def test_a_larger_model_never_needs_less(one: int, other: int, zero: int, ranks: int) -> None:
    small, large = (
        estimate(training(layers, zero=zero), plan_of(GB), workers=1, ranks=ranks) for layers in sorted((one, other))
    )
    assert small.training_bytes <= large.training_bytes
    assert small.disk_bytes <= large.disk_bytes


def test_compressed_input_counts_as_what_it_unpacks_to() -> None:
    plain, packed = (estimate(recipe_of(), plan_of(GB, path), workers=1) for path in ("a.jsonl", "a.jsonl.zst"))
    assert packed.text_bytes == pytest.approx(3.5 * plain.text_bytes)
    assert packed.disk_bytes > 3 * plain.disk_bytes


def test_a_gigabyte_of_text_needs_one_to_three_of_disk() -> None:
    assert GB < estimate(recipe_of(), plan_of(GB), workers=1).disk_bytes < 3 * GB


def test_fully_sharded_states_do_not_grow_with_the_ranks() -> None:
    one, eight = (
        estimate(training(layers=48, zero=3), plan_of(GB), workers=1, ranks=ranks).training_bytes for ranks in (1, 8)
    )
    replicated = estimate(training(layers=48, zero=0), plan_of(GB), workers=1, ranks=8).training_bytes
    assert one < eight < replicated


def test_a_recipe_without_training_needs_none() -> None:
    assert estimate(recipe_of(), plan_of(GB), workers=1).training_bytes == 0
    assert estimate(training(), plan_of(GB), workers=1, train=False).training_bytes == 0


def test_a_wide_vocabulary_takes_twice_the_bytes_per_token() -> None:
    narrow, wide = (
        estimate(recipe_of(tokenizer={"vocab_size": size}), plan_of(GB), workers=1) for size in (1 << 16, (1 << 16) + 1)
    )
    assert wide.disk_bytes - narrow.disk_bytes == pytest.approx(GB / 4 * 2, rel=0.01)


@pytest.mark.parametrize(
    ("path", "declared", "kind"),
    [
        ("s3://b/CC-MAIN-2024.warc.gz", "auto", "warc.gz"),
        ("x/CC-MAIN-2024.warc.wet.gz", "auto", "wet.gz"),
        ("x.wet", "auto", "wet"),
        ("x/A.JSONL.ZST", "auto", "jsonl.zst"),
        ("x.ndjson", "auto", "jsonl"),
        ("part-0.zstd.parquet", "auto", "parquet"),
        ("data", "auto", "unknown"),
        ("data.gz", "jsonl", "jsonl.gz"),
        ("x.warc.zst", "auto", "warc.gz"),
        ("folder.warc/notes.txt.gz", "auto", "unknown.gz"),
    ],
)
def test_the_kind_of_a_file_is_taken_from_its_name(path: str, declared: str, kind: str) -> None:
    assert kind_of(path, declared) == kind


@given(st.text(max_size=30), st.sampled_from(["auto", "warc", "wet", "jsonl", "parquet"]))
def test_every_name_has_a_kind(path: str, declared: str) -> None:
    assert kind_of(path, declared) in TEXT_PER_BYTE
