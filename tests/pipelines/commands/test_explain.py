from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from pipelines import cli
from pipelines.commands.explain import explain

RECIPE = """
[[sources]]
glob = "*.jsonl"
[[stages]]
use = "gopher_quality_v2"
min_words = 3
min_stop_words = 0
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe beside a file with a short text, a long one that steers terminals, and a line that is no JSON."""
    (tmp_path / "recipe.toml").write_text(RECIPE)
    texts = ["one two", "one two \x1b[31m three four"]
    lines = [json.dumps({"text": text, "url": "http://a.example/"}) for text in texts]
    (tmp_path / "a.jsonl").write_text("\n".join([*lines, "{"]) + "\n")
    return tmp_path / "recipe.toml"


def output(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    command = cli._command("explain", explain)
    with pytest.raises(SystemExit) as caught:
        command.main(args=[str(one) for one in arguments], prog_name="headrace")
    assert (caught.value.code or 0) == code
    return capsys.readouterr().out


def test_documents_are_shown_with_scores_limits_and_ends(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, str(recipe), str(recipe.parent / "a.jsonl"))
    assert "dropped by gopher_quality_v2: too_few_words at 2" in text
    assert "at least 3; at most 100000" in text
    assert "stops here: too_few_words" in text
    assert "failed in read: bad_json" in text
    assert "3 records: 1 kept by the chain, 1 dropped, 1 failed." in text
    assert "\x1b" not in text


def test_json_is_an_object_a_line(recipe: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(recipe), str(recipe.parent / "a.jsonl"), "--json", "--chars", "3"]
    found = [json.loads(line) for line in output(capsys, *arguments).splitlines()]
    assert [one["verdict"] for one in found] == ["dropped", "kept", "failed"]
    assert [one["text"] for one in found] == ["one", "one", None]
    assert [len(output(capsys, *arguments, "--limit", str(n)).splitlines()) for n in (1, 2, 0)] == [1, 2, 3]
    changed = output(capsys, str(recipe), str(recipe.parent / "a.jsonl"), "gopher_quality_v2.min_words=9", "--json")
    assert [json.loads(line)["verdict"] for line in changed.splitlines()] == ["dropped", "dropped", "failed"]


def test_a_pipe_is_read_to_its_end(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data: Any = io.TextIOWrapper(io.BytesIO((recipe.parent / "a.jsonl").read_bytes()))
    monkeypatch.setattr("sys.stdin", data)
    assert len(output(capsys, str(recipe), "-", "--json").splitlines()) == 3
