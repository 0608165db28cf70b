"""README and CONTRIBUTING say what is true: their code runs, their recipes parse, their tree exists."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from pipelines.recipe import parse_recipe
from shards.schema import DOCUMENT
from stages.base import Stage
from stages.marking import mark
from tests.integration.support import CHECKOUT, headrace
from tests.trainer.synthetic_run import write_run

README = CHECKOUT / "README.md"
CONTRIBUTING = CHECKOUT / ".github" / "CONTRIBUTING.md"


def blocks(document: Path, language: str, after: str = "") -> list[str]:
    """Return the code blocks of a language, all or those right after a marker comment."""
    marker = rf"<!-- {re.escape(after)}[^>]*-->\n" if after else ""
    return re.findall(rf"{marker}```{language}\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)


def test_the_recipe_in_the_readme_is_valid() -> None:
    (recipe,) = blocks(README, "toml")
    parsed = parse_recipe(tomllib.loads(recipe), "README.md")
    assert parsed.stages[0].use == "url_blacklist_v1"


@pytest.mark.integration
def test_the_python_in_the_readme_runs_and_prints_the_verdict() -> None:
    (code,) = blocks(README, "python", after="beam: ")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=CHECKOUT, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["gopher_quality_v2", "too_few_words"]


@pytest.mark.parametrize(("example", "needs"), [("a loop", "torch"), ("Hugging Face", "accelerate")])
def test_the_streams_examples_in_the_readme_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str, needs: str
) -> None:
    pytest.importorskip(needs)
    (code,) = blocks(README, "python", after=f"stream: {example}")
    write_run(tmp_path / "headrace-demo" / "run")
    monkeypatch.chdir(tmp_path)
    values: dict[str, Any] = {"__name__": "readme"}
    exec(compile(code, str(README), "exec"), values)
    if example == "a loop":
        assert next(iter(values["dataset"]))["step"] == 5
    else:
        assert (tmp_path / "hugging-face").is_dir()


def test_all_python_in_the_readme_is_run_by_a_test() -> None:
    assert len(blocks(README, "python")) == 3


def test_the_tree_in_the_readme_is_the_tree() -> None:
    text = README.read_text(encoding="utf-8")
    tree = text[text.index("## The tree") :]
    block = re.search(r"```\n(.*?)```", tree, re.DOTALL)
    assert block
    parent = ""
    for line in block.group(1).splitlines():
        name = line.split()[0]
        parent = parent if line.startswith(" ") else name
        path = CHECKOUT / (parent if line.startswith(" ") else "") / name
        assert path.exists(), path
    top = {path.name for path in CHECKOUT.iterdir() if not path.name.startswith(".")}
    ignored = {"headrace-demo", "dist", "build"}
    assert top - ignored - {p for p in top if p.endswith(".egg-info")} == {
        "pyproject.toml",
        "README.md",
        "pipelines",
        "stages",
        "shards",
        "trainer",
        "tests",
    }


def test_the_filter_in_contributing_works_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = blocks(CONTRIBUTING, "python", after="filter: ")
    assert 25 <= len(code.splitlines()) <= 40
    (line,) = blocks(CONTRIBUTING, "python", after="registry line")
    name, target = re.findall(r'"([^"]+)"', line)
    module = _load(tmp_path, target.partition(":")[0], code, monkeypatch)
    kind = getattr(module, target.partition(":")[2])
    stage: Stage = kind()
    assert (stage.name, isinstance(stage, Stage)) == (name, True)
    texts = ["BUY NOW at Ours", "A quiet sentence.", "", "12 34", None]
    rows = [{"doc_id": i, "text": text} for i, text in enumerate(texts)]
    common = {"source_index": 0, "offset": 0, "language": "en", "domain": "web", "failed": False}
    batch = pa.RecordBatch.from_pylist([{**row, **common} for row in rows], schema=DOCUMENT)
    marked = mark(stage, batch)
    assert marked.column("reason").to_pylist() == ["too_much_upper_case", None, None, None, None]
    assert marked.column("value").to_pylist()[0] == 0.5833
    assert marked.column("upper_case_v1.upper_case").to_pylist() == [0.5833, 0.0714, None, None, None]
    # Of the columns that it needs alone, and with any limit that a recipe may write.
    assert stage.judge(pa.record_batch({"text": texts})).codes.tolist() == [0, -1, -1, -1, -1]
    by_language = kind(max_upper_case={"language": {"en": 0.05}, "default": 0.4})
    assert by_language.judge(batch).codes.tolist() == [0, 0, -1, -1, -1]
    assert kind(max_upper_case={"percentile": 50}).judge(batch).codes.tolist() == [-1] * 5


def _load(folder: Path, name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    path = folder / f"{name.rpartition('.')[2]}.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    # pydantic looks a dataclass's annotations up in its module.
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.integration
def test_the_commands_in_the_readme_run(tmp_path: Path, prism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("prism").symlink_to(prism)
    headrace("demo", "--workers", "1", "--ranks", "1")
    (recipe,) = blocks(README, "toml")
    Path("recipe.toml").write_text(recipe, encoding="utf-8")
    commands = [line for block in blocks(README, "bash") for line in block.splitlines() if line.startswith("headrace ")]
    assert len(commands) >= 7
    for command in commands:
        headrace(*shlex.split(command, comments=True)[1:])
