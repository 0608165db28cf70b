from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from unittest.mock import patch

import apache_beam as beam
import pyarrow as pa
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.util import assert_that

from pipelines import cost_files
from pipelines.beam import meter
from pipelines.beam.apply import Apply, _Mark
from pipelines.beam.dofn import Step
from pipelines.beam.units import numbered
from pipelines.cost_files import UnitCosts
from shards.schema import DOCUMENT
from shards.store import Store
from stages.base import Stage
from stages.judges.gopher_quality import GopherQuality
from stages.judges.sample import Sample
from stages.marking import live_mask, mark

STAGES = [
    cast(Stage, Sample(share=0.5, seed=3)),
    cast(Stage, GopherQuality(min_words=4, min_stop_words=0, domains=("web",))),
]


def documents(first: int, texts: list[str]) -> pa.RecordBatch:
    rows = [
        {"doc_id": first + i, "text": text, "source_index": 0, "offset": i, "language": "en", "failed": False}
        | {"domain": "web" if i % 3 else "code"}
        for i, text in enumerate(texts)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=DOCUMENT)


BATCHES = [
    documents(0, ["short one", "a text that is long enough to stay", "no"] * 7),
    documents(100, ["words and words and more words"] * 5).slice(1, 3).replace_schema_metadata({"own": "metadata"}),
    documents(200, []),
]


def rows_of(batches: list[pa.RecordBatch]) -> list[Any]:
    return sorted(([batch.schema.metadata, batch.to_pylist()] for batch in batches), key=str)


def test_any_stage_works_in_a_pipeline_of_ones_own() -> None:
    expected = BATCHES
    for stage in STAGES:
        expected = [mark(stage, batch) for batch in expected]

    def check(found: list[pa.RecordBatch]) -> None:
        assert rows_of(found) == rows_of(expected)
        assert all(batch.schema.equals(expected[0].schema) for batch in found)

    pipeline = beam.Pipeline(runner=FnApiRunner())
    batches = pipeline | beam.Create(BATCHES, reshuffle=False)
    for stage in STAGES:
        # A shuffle between the stages sends batches through their coder.
        batches = batches | Apply(stage) | f"shuffle after {stage.name}" >> beam.Reshuffle()
    assert_that(batches, check)
    result = pipeline.run()
    result.wait_until_finish()

    counted = {metric.key.metric.name: metric.committed for metric in result.metrics().query()["counters"]}
    seen = sum(batch.num_rows for batch in BATCHES)
    dropped = pa.Table.from_batches(expected).column("dropped_by").to_pylist()
    assert counted["sample_v1.seen"] == seen
    assert counted["sample_v1.not_sampled"] == dropped.count("sample_v1") == seen - counted["sample_v1.kept"]
    assert counted["gopher_quality_v2.seen"] == counted["sample_v1.kept"]
    assert counted["gopher_quality_v2.too_few_words"] == dropped.count("gopher_quality_v2") > 0


def test_costs_are_of_the_rows_that_a_stage_judges() -> None:
    written: list[UnitCosts] = []

    class Commits(Step):
        def work(self, batch: pa.RecordBatch) -> Iterator[Any]:
            meter.commit(Store("."), "pass", "u", "digest")
            yield from ()

    (batch,) = numbered("u", BATCHES[:1], BATCHES[0])
    dofns = [_Mark(stage) for stage in STAGES]
    with patch.object(cost_files, "write", lambda store, name, record: written.append(record)):
        for dofn in dofns:
            (batch,) = dofn.process(batch)
        assert list(Commits().process(batch)) == []
    expected = BATCHES[0]
    for stage in STAGES:
        rows = [row for row, live in zip(expected.to_pylist(), live_mask(stage, expected), strict=True) if live]
        cost = written[0].stages[stage.name]
        assert (cost.rows_in, cost.bytes) == (len(rows), sum(len(row["text"]) for row in rows))
        assert cost.rows_out == BATCHES[0].num_rows
        expected = mark(stage, expected)
    assert 0 < written[0].stages["gopher_quality_v2"].rows_in < written[0].stages["sample_v1"].rows_in
    assert batch.equals(expected)


def test_is_labelled_by_its_stage() -> None:
    assert [Apply(stage).label for stage in STAGES] == ["sample_v1", "gopher_quality_v2"]
