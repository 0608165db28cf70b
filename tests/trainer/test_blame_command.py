from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from shards.errors import UserError
from shards.reader import ShardSet
from tests.trainer.synthetic_run import write_run
from trainer.blame import content_digest, documents, plan_of
from trainer.blame_command import blame
from trainer.config import Job

app = typer.Typer()
app.command()(blame)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run") / "run", documents=60)


def test_a_step_is_named_document_by_document(folder: Path) -> None:
    shown = CliRunner().invoke(app, [str(folder), "3"])
    assert shown.exit_code == 0, shown.output
    plan = plan_of(Job.load(folder), ShardSet.open(folder / "shards"), 3)
    lines = shown.output.splitlines()
    assert lines[0] == f"step 3: {len(plan.placed.row)} spans in {plan.rows} rows, content {content_digest(plan)}"
    assert len(lines) == 1 + len(plan.placed.row)
    assert all("http" in line and "doc " in line for line in lines[1:])


def test_json_has_every_column_and_one_domain_where_asked(folder: Path) -> None:
    found = CliRunner().invoke(app, [str(folder), "3", "--json", "--domain", "web"])
    spans = [json.loads(line) for line in found.output.splitlines()]
    shards = ShardSet.open(folder / "shards")
    expected = [one for one in documents(shards, plan_of(Job.load(folder), shards, 3)) if one["domain"] == "web"]
    assert [{key: span[key] for key in expected[0]} for span in spans] == expected
    assert {span["step"] for span in spans} == {3}
    # The synthetic run has no tokeniser.
    assert {span["text"] for span in spans} == {None}


def test_another_step_serves_other_content(folder: Path) -> None:
    job, shards = Job.load(folder), ShardSet.open(folder / "shards")
    digests = [content_digest(plan_of(job, shards, step)) for step in (1, 2, 1)]
    assert digests[0] == digests[2] != digests[1]


@pytest.mark.parametrize(
    ("arguments", "what"), [(["99"], "so no step 98"), (["3", "--domain", "code"], "no domain 'code'")]
)
def test_a_mistake_is_a_users_error(folder: Path, arguments: list[str], what: str) -> None:
    found = CliRunner().invoke(app, [str(folder), *arguments])
    assert isinstance(found.exception, UserError)
    assert what in str(found.exception)
