from __future__ import annotations

from pathlib import Path

import pytest
import typer
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.distributed.device_mesh import DeviceMesh
from typer.testing import CliRunner

from shards.errors import UserError
from shards.reader import ShardSet
from tests.trainer.synthetic_run import write_run
from tests.trainer.test_generate import Never
from trainer import tokens
from trainer.config import Job
from trainer.generate_command import generate
from trainer.worker import train

app = typer.Typer()
app.command()(generate)


def test_a_prompt_is_continued_once_everything_is_there(
    tmp_path: Path, mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", documents=60)
    arguments = [str(folder), "w5 w9", "--tokens", "4", "--seed", "3"]
    missing = CliRunner().invoke(app, arguments)
    assert isinstance(missing.exception, UserError)
    assert "tokeniser cannot be loaded" in str(missing.exception)
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(300)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (folder / "tokenizer").mkdir()
    tokenizer.save(str(folder / "tokenizer/tokenizer-x.json"))
    # The synthetic run's catalogue names a digest of its own.
    digest = ShardSet.open(folder / "shards").catalog.tokenizer
    monkeypatch.setattr(tokens, "hash_file", lambda path: (digest, 0))
    untrained = CliRunner().invoke(app, arguments)
    assert "no finished weights" in str(untrained.exception)
    train(Job.load(folder), mesh, Never())  # type: ignore[arg-type]
    first, second = (CliRunner().invoke(app, arguments) for _ in range(2))
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout
    words = first.stdout.split()
    assert words[:2] == ["w5", "w9"]
    assert 2 < len(words) <= 6
