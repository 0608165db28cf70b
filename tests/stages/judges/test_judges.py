"""What holds for every registered stage, whatever it judges."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.schema import DOCUMENT
from stages import scans
from stages.base import Stage, columns_of, failures_of, parameters, score_column
from stages.checks import KEPT
from stages.marking import live_mask, mark
from stages.registry import (
    REGISTRY,
)
from tests.golden.parameters import build, variants_of


@pytest.fixture(scope="module")
def stages() -> dict[str, Stage]:
    """One of each registered stage, with parameters under which some documents drop and some stay."""
    return {name: build(name, next(iter(variants_of(name).values()))) for name in REGISTRY}


TEXTS = st.sampled_from(
    [
        None,
        "",
        "x",
        "The cat sat on the mat and looked at the dog that was with it, and then the two of them went to sleep.",
        "Der Hund schläft in der Sonne, und die Katze liegt daneben auf der alten Mauer im Garten.",
        "the the the the the the",
        "buy now " * 30,
        "zxq vbn 123 #tag ... \n" * 4,
        "这条河发源于城市上方的山丘，缓缓流过草地，最后注入大海。",
        "line\n" * 12,
    ]
)
PAYLOADS = st.sampled_from([None, b"", b"<html><body><p>Some text of a page.</p></body></html>", b"\xff\x00<p>x"])
URLS = st.sampled_from(
    [
        None,
        "",
        "http://games.example/",
        "https://www.portal.example/play/1",
        "http://good.example/a",
        "dns:x",
        "http://[::1",
    ]
)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    rows = []
    for doc_id in draw(st.lists(st.integers(0, 1 << 62), unique=True, min_size=1, max_size=8)):
        marked = draw(st.booleans())
        text = draw(TEXTS)
        rows.append(
            {
                "doc_id": doc_id,
                "text": text,
                "payload": draw(PAYLOADS) if text is None else None,
                "media_type": draw(st.sampled_from([None, "text/html", "text/html; charset=latin1"])),
                "url": draw(URLS),
                "source_index": 0,
                "offset": 0,
                "language": draw(st.sampled_from(["und", "en", "de", "zh"])),
                "domain": draw(st.sampled_from(["web", "code"])),
                "dropped_by": "earlier_v1" if marked else None,
                "reason": "earlier" if marked else None,
                "failed": False,
            }
        )
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENT)


each_stage = pytest.mark.parametrize("name", REGISTRY)


@each_stage
@settings(max_examples=10, deadline=None)
@given(batch=batches(), data=st.data())
def test_cutting_a_batch_in_two_changes_nothing(
    name: str, stages: dict[str, Stage], batch: pa.RecordBatch, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, batch.num_rows))
    whole = mark(stages[name], batch)
    parts = [mark(stages[name], part) for part in (batch.slice(0, at), batch.slice(at))]
    assert pa.Table.from_batches(parts).to_pylist() == whole.to_pylist()


@each_stage
@settings(max_examples=10, deadline=None)
@given(batch=batches())
def test_the_scores_of_a_row_do_not_depend_on_its_batch(
    name: str, stages: dict[str, Stage], batch: pa.RecordBatch
) -> None:
    live = np.flatnonzero(live_mask(stages[name], batch))
    judged = batch.take(pa.array(live))
    columns = [score_column(stages[name], score.name) for score in stages[name].scores]
    together = mark(stages[name], batch).take(pa.array(live)).select(columns).to_pylist()
    alone = []
    for row in range(len(live)):
        scans.forget()
        verdict = stages[name].judge(judged.slice(row, 1))
        alone.append({column: verdict.columns[column][0].as_py() for column in columns})
    assert alone == together


@each_stage
@settings(max_examples=10, deadline=None)
@given(batch=batches())
def test_a_stage_that_stands_twice_measures_the_same(
    name: str, stages: dict[str, Stage], batch: pa.RecordBatch
) -> None:
    again = cast(Callable[..., Stage], type(stages[name]))(**{**parameters(stages[name]), "instance": "again"})
    once = mark(stages[name], batch)
    fresh = [
        column for column in batch.schema.names if column not in ("dropped_by", "reason", "value", "detail", "failed")
    ]
    both = mark(again, batch)
    for column in fresh:
        assert both.column(column) == once.column(column)
    for score in stages[name].scores:
        assert both.column(score_column(again, score.name)) == once.column(score_column(stages[name], score.name))
    assert set(both.column("dropped_by").to_pylist()) <= {None, "earlier_v1", "again"}


@each_stage
@settings(max_examples=10, deadline=None)
@given(batch=batches(), data=st.data())
def test_the_order_of_rows_does_not_matter(
    name: str, stages: dict[str, Stage], batch: pa.RecordBatch, data: st.DataObject
) -> None:
    order = pa.array(data.draw(st.permutations(range(batch.num_rows))), pa.int64())
    assert mark(stages[name], batch.take(order)).to_pylist() == mark(stages[name], batch).take(order).to_pylist()


@each_stage
@settings(max_examples=10, deadline=None)
@given(batch=batches())
def test_marks_only_unmarked_rows_of_its_domains_for_declared_reasons(
    name: str, stages: dict[str, Stage], batch: pa.RecordBatch
) -> None:
    kind = cast(Callable[..., Stage], type(stages[name]))
    stage = kind(**{**parameters(stages[name]), "domains": ("web",)})
    before, after = batch.to_pylist(), mark(stage, batch).to_pylist()
    for old, new in zip(before, after, strict=True):
        if old["dropped_by"] is not None or old["domain"] != "web":
            assert {key: new[key] for key in old} == old
            assert all(new[column] is None for column in columns_of(stage))
        elif new["dropped_by"] is not None:
            assert new["dropped_by"] == stage.name
            assert new["reason"] in (stage.failures if new["failed"] else stage.reasons)
            # What decided is one of the scores.
            if new["value"] is not None:
                assert new["value"] in [new[score_column(stage, score.name)] for score in stage.scores]
        else:
            assert new["reason"] is None


@each_stage
@settings(max_examples=10, deadline=None)
@given(batch=batches())
def test_the_verdict_has_the_declared_shape(name: str, stages: dict[str, Stage], batch: pa.RecordBatch) -> None:
    stage = stages[name]
    verdict = stage.judge(batch)
    assert verdict.codes.dtype == np.int8
    assert len(verdict.codes) == batch.num_rows
    assert set(verdict.codes.tolist()) <= {KEPT, *range(len(stage.reasons + failures_of(stage)))}
    declared = columns_of(stage)
    assert set(verdict.columns) - set(DOCUMENT.names) == set(declared)
    for column, array in verdict.columns.items():
        expected = declared[column] if column in declared else DOCUMENT.field(column).type
        assert (len(array), array.type) == (batch.num_rows, expected)


@each_stage
def test_an_empty_batch_and_one_without_live_rows_keep_the_schema(name: str, stages: dict[str, Stage]) -> None:
    empty = pa.RecordBatch.from_pylist([], schema=DOCUMENT)
    assert set(mark(stages[name], empty).schema.names) == {*DOCUMENT.names, *columns_of(stages[name])}


@each_stage
def test_a_stage_is_small_when_pickled_and_equal_after(name: str, stages: dict[str, Stage]) -> None:
    packed = pickle.dumps(stages[name])
    assert len(packed) < 10_000
    assert pickle.loads(packed) == stages[name]


@each_stage
def test_names_and_reasons_are_unambiguous(name: str, stages: dict[str, Stage]) -> None:
    stage = stages[name]
    assert stage.name == name
    outcomes = stage.reasons + failures_of(stage)
    assert len(set(outcomes)) == len(outcomes)
    assert len(columns_of(stage)) == len(stage.columns) + len({score.name for score in stage.scores})
    assert set(stage.needs) <= set(DOCUMENT.names)
    fields = {field.name for field in dataclasses.fields(cast(Any, stage))}
    assert set(stage.path_parameters) <= fields


@each_stage
def test_unknown_parameters_are_refused(name: str, stages: dict[str, Stage]) -> None:
    make = cast(Callable[..., Any], type(stages[name]))
    with pytest.raises(pydantic.ValidationError, match="unexpected_keyword_argument"):
        make(**parameters(stages[name]), unheard_of=1)


def test_files_exist(stages: dict[str, Stage]) -> None:
    assert all(Path(path).is_file() for stage in stages.values() for path in stage.files())
    for stage in stages.values():
        stage.check_files()
