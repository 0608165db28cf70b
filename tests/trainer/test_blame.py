from __future__ import annotations

from pathlib import Path

import pytest

from shards.reader import ShardSet
from tests.shards.small_shards import tokens_of
from tests.trainer.synthetic_run import write_run
from trainer.blame import documents, plan_of
from trainer.blame import tokens_of as span_tokens
from trainer.config import Job


def test_spans_have_their_tokens_and_their_source(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", documents=60)
    shards, job = ShardSet.open(folder / "shards"), Job.load(folder)
    plan = plan_of(job, shards, 3)
    for index, span in enumerate(documents(shards, plan)):
        whole = tokens_of(shards, span["domain"], "train", span["row"])
        first = span["first_token"]
        assert span_tokens(shards, span, plan, index) == whole[first : first + span["span_tokens"]].tolist()
        assert span["url"].startswith("http")
    with pytest.raises(ValueError, match="no step"):
        plan_of(job, shards, job.schedule.steps + 1)
