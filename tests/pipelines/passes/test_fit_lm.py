from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.beam.base import Inputs
from pipelines.passes.build import build_passes
from pipelines.passes.fit_lm import FitLm, reference_lines
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.workspace import Workspace
from stages.judges.perplexity import _load, log10_perplexity
from stages.lm import kneser_ney
from stages.lm.normalise import lm_lines
from tests.pipelines.support import plan_of


def workspace_of(base: Path, order: int = 2, language: str = "en") -> Workspace:
    table = {"sources": [{"glob": "x"}], "lm": [{"language": language, "corpus": ["*.txt"], "order": order}]}
    return Workspace.of(str(base / "out"), parse_recipe(table, "t"), str(base))


def digest_of(workspace: Workspace) -> str:
    work = build_passes(workspace, plan_of(1, workspace.recipe))[0]
    assert isinstance(work, FitLm)
    return work.digest(Inputs(Run(workspace, "key"), work.inputs))


def model_of(made: Any) -> Path:
    return Path(made.run.store.uri(made.entry("fit_lm", "model", "und").path))


def test_the_published_model_is_that_of_the_reference_text(made: Any, corpus: Any, tmp_path: Path) -> None:
    text = (corpus.folder / "reference.txt").read_text()
    lines = [line for raw in text.splitlines() for line in lm_lines(raw)]
    kneser_ney.fit(lines, 2).write_arpa(tmp_path / "own.arpa")
    published = model_of(made)
    assert published.read_bytes() == (tmp_path / "own.arpa").read_bytes()
    assert published.is_relative_to(made.root)


def test_scores_in_the_verdicts_are_those_of_the_model(made: Any, corpus: Any) -> None:
    model = _load(str(model_of(made)))
    for row in [row for row in made.verdicts() if row["perplexity_v1.perplexity"] is not None][::11]:
        exponent, _ = log10_perplexity(model, corpus.texts[row["url"]], 100_000)
        assert row["perplexity_v1.perplexity"] == pytest.approx(10**exponent, rel=2e-4)


def test_reference_text_need_not_be_clean(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"Good text.\n\xff\xfe broken\r\n\n   \n<s> and </s>")
    assert list(reference_lines([str(tmp_path / "a.txt")])) == [
        line for raw in ("Good text.", "\ufffd\ufffd broken", "<s> and </s>") for line in lm_lines(raw)
    ]


def test_the_digest_is_of_content_and_order_not_of_names(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three")
    first = digest_of(workspace_of(tmp_path))
    assert digest_of(workspace_of(tmp_path, order=3)) != first
    assert digest_of(workspace_of(tmp_path, language="de")) != first
    (tmp_path / "a.txt").rename(tmp_path / "z.txt")
    assert digest_of(workspace_of(tmp_path)) == first
    (tmp_path / "z.txt").write_text("one two four")
    assert digest_of(workspace_of(tmp_path)) != first
