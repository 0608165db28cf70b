from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.chain import build_chain
from pipelines.effects import check_languages, check_names, idle, unmodelled
from pipelines.recipe import parse_recipe
from pipelines.workspace import Workspace
from shards.errors import UserError

LANGUAGE = {"use": "language_v1"}


def workspace(tmp_path: Path, **table: Any) -> Workspace:
    (tmp_path / "ref.txt").write_text("some words")
    return Workspace.of(
        str(tmp_path / "out"), parse_recipe({"sources": [{"glob": "*"}], **table}, "test"), str(tmp_path)
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"stages": [{**LANGUAGE, "keep": ["eng"]}]}, r"language 'eng'.*stage language_v1, keep. Did you mean 'en'\?"),
        ({"stages": [{**LANGUAGE, "keep": ["de", "english"]}]}, r"language 'english'"),
        (
            {"stages": [LANGUAGE, {"use": "gopher_quality_v2", "min_words": {"language": {"ger": 3}}}]},
            r"'ger'.*stage gopher_quality_v2, min_words",
        ),
        ({"stages": [LANGUAGE, {"use": "gopher_quality_v2", "stop_words": {"xx1": ["a"]}}]}, r"'xx1'.*stop_words"),
        ({"stages": [LANGUAGE], "lm": [{"language": "deu", "corpus": ["ref.txt"]}]}, r"'deu'.*lm \(deu\)"),
    ],
)
def test_a_label_that_the_model_does_not_know_is_refused(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    made = workspace(tmp_path, **table)
    fitted = dict.fromkeys((lm.language for lm in made.recipe.lm), "")
    with pytest.raises(UserError, match=message):
        check_languages(build_chain(made, fitted), made.recipe)


def test_labels_that_it_knows_pass_and_so_does_the_unknown_one(tmp_path: Path) -> None:
    made = workspace(tmp_path, stages=[{**LANGUAGE, "keep": ["en", "und", "sco"]}])
    check_languages(build_chain(made, {}), made.recipe)


def test_without_a_language_stage_languages_are_said_to_have_no_effect(tmp_path: Path) -> None:
    limits = {"use": "gopher_quality_v2", "min_words": {"language": {"de": 30}, "default": 50}}
    made = workspace(tmp_path, stages=[limits], lm=[{"language": "und", "corpus": ["ref.txt"]}])
    check_languages(build_chain(made, {"und": ""}), made.recipe)
    (note,) = idle(made)
    assert "what is said of de has no effect" in note
    assert idle(workspace(tmp_path, stages=[LANGUAGE, limits])) == []
    (note,) = idle(workspace(tmp_path, stages=[limits, LANGUAGE]))
    assert note.startswith("gopher_quality_v2 comes before the stage that sets the language, so what it says of de")


def test_limits_of_a_domain_that_no_document_can_have_are_refused(tmp_path: Path) -> None:
    shares = {"use": "gopher_repetition_v2", "max_top_ngram_chars": [0.2, 0.2, {"domain": {"wbe": 0.1}}]}
    for key in ("stages", "edits"):
        with pytest.raises(UserError, match=r"domain 'wbe'.*0.max_top_ngram_chars"):
            check_names(workspace(tmp_path, **{key: [shares]}).recipe)


def test_perplexity_without_any_model_is_said_before_a_run(tmp_path: Path) -> None:
    (note,) = idle(workspace(tmp_path, stages=[LANGUAGE, {"use": "perplexity_v1"}]))
    assert "perplexity_v1 has no language model" in note


def test_a_run_says_which_languages_no_model_knew(made: Any, corpus: Any, run_recipe: Any, tmp_path: Path) -> None:
    assert unmodelled(made.run) == []
    lm = [{"language": "en", "corpus": ["reference.txt"], "order": 2}]
    plain = {"schedule": None, "dedup": {"exact": False, "near": False}, "stages": [{"use": "perplexity_v1"}]}
    other = run_recipe(tmp_path / "other", corpus.recipe(lm=lm, **plain), corpus.folder)
    (note,) = unmodelled(other.run)
    judged = sum(row["dropped_by"] != "read" for row in other.verdicts())
    assert f"no model for documents in und ({judged:,})" in note
