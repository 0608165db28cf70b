from __future__ import annotations

import errno
import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic
import pytest
import zstandard

from shards.errors import UserError
from stages.checks import KEPT
from stages.judges.perplexity import Perplexity, log10_perplexity
from stages.models.cache import load_once
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]

ARPA = """\\data\\
ngram 1=5
ngram 2=3

\\1-grams:
-1.5\t<unk>
-99\t<s>\t-0.25
-0.75\t</s>
-0.5\tthe\t-0.125
-1.0\tcat\t-0.375

\\2-grams:
-0.3\t<s> the
-0.2\tthe cat
-0.1\tcat </s>

\\end\\
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tiny.arpa"
    path.write_text(ARPA)
    return str(path)


def judge(
    documents: Batches, texts: list[str], language: str = "en", **parameters: Any
) -> tuple[list[str | None], Any]:
    stage = stage_of(Perplexity, **parameters)
    verdict = stage.judge(documents(len(texts), text=texts, language=[language] * len(texts)))
    found = [None if code == KEPT else stage.reasons[code] for code in verdict.codes]
    return found, verdict.columns["perplexity_v1.perplexity"].to_pylist()


def test_perplexity_is_per_token_with_the_end_of_each_line(documents: Batches, model: str) -> None:
    # <s> the, the cat, cat </s>; then <s> cat by back-off, cat </s>.
    total = -0.3 - 0.2 - 0.1 + (-0.25 - 1.0) - 0.1
    _, scores = judge(documents, ["The CAT\n\n cat"], models={"en": model})
    assert scores == [float(f"{10 ** round(-total / 5, 4):.7g}")]


def test_both_tails_drop_and_limits_themselves_stay(documents: Batches, model: str) -> None:
    plain, middle, chaotic = "the cat", "the cat the cat cat", "zzz"
    _, scores = judge(documents, [plain, middle, chaotic], models={"en": model})
    assert scores == sorted(scores)
    for limit in (scores[1], {"language": {"en": scores[1]}}, {"language": {"en": scores[1]}, "default": 1.0}):
        limits: dict[str, Any] = {"min_perplexity": limit, "max_perplexity": limit}
        found, _ = judge(documents, [plain, middle, chaotic], models={"en": model}, **limits)
        assert found == ["too_plain", None, "too_chaotic"]


def test_a_limit_of_one_language_says_nothing_of_others(documents: Batches, model: str) -> None:
    models = {"en": model, "de": model}
    limit = {"language": {"de": 1.5}}
    assert judge(documents, ["zzz"], "de", models=models, max_perplexity=limit)[0] == ["too_chaotic"]
    assert judge(documents, ["zzz"], "en", models=models, max_perplexity=limit)[0] == [None]
    assert judge(documents, ["zzz"], "en", models=models, max_perplexity={**limit, "default": 2})[0] == ["too_chaotic"]


def test_percentiles_decide_nothing_here(documents: Batches, model: str) -> None:
    found, scores = judge(
        documents,
        ["the cat", "zzz"],
        models={"en": model},
        min_perplexity={"percentile": 40},
        max_perplexity={"percentile": 60, "by": "language"},
    )
    assert found == [None, None]
    assert None not in scores


def test_a_language_without_a_model_is_kept_without_a_score_or_dropped(documents: Batches, model: str) -> None:
    assert judge(documents, ["chat"], "fr", models={"en": model}) == ([None], [None])
    assert judge(documents, ["chat"], "fr", models={"en": model}, unmodelled="drop") == (["no_model"], [None])


def test_text_without_words_has_no_score_and_its_own_reason(documents: Batches, model: str) -> None:
    assert judge(documents, ["", " \n\t "], models={"en": model}) == (["no_words"] * 2, [None] * 2)


def test_tokens_are_those_that_were_scored(documents: Batches, model: str) -> None:
    batch = documents(4, text=["the cat\nthe", "", "a b", None], language=["en", "en", "fr", "en"])
    columns = stage_of(Perplexity, models={"en": model}).judge(batch).columns
    assert columns["perplexity_v1.tokens"].to_pylist() == [5, 0, None, 0]


def test_a_long_document_is_scored_on_its_first_lines(documents: Batches, model: str) -> None:
    lines = ["the cat"] * 4
    _, whole = judge(documents, ["\n".join(lines)], models={"en": model})
    # Three tokens a line: the second line reaches the limit, the third is not scored.
    _, cut = judge(documents, ["\n".join([*lines[:2], "zzz " * 100])], models={"en": model}, max_tokens=4)
    assert whole == cut


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_perplexity": {"language": {"fr": 5.0}}}, "'fr', which has no model"),
        (
            {"min_perplexity": {"language": {"en": 9.0}}, "max_perplexity": {"language": {"en": 5.0}}},
            "9.0 of 'en' is above",
        ),
        ({"min_perplexity": {"language": {"en": 9.0}}, "max_perplexity": 5.0}, "9.0 of 'en' is above"),
        ({"min_perplexity": 9.0, "max_perplexity": {"domain": {"web": 5.0}}}, "9.0 of 'web' is above"),
        (
            {"min_perplexity": 9.0, "max_perplexity": {"domain": {"web": 50.0}, "default": 5.0}},
            "min_perplexity 9.0 is above max_perplexity 5.0",
        ),
        ({"min_perplexity": 9.0, "max_perplexity": 5.0}, "min_perplexity 9.0 is above max_perplexity 5.0"),
        (
            {"min_perplexity": {"percentile": 50.0}, "max_perplexity": {"percentile": 5.0}},
            "percentile 50.0 of min_perplexity is not below 5.0",
        ),
        ({"min_perplexity": {"percentile": -1.0}}, "min_perplexity"),
        ({"max_perplexity": {"language": {"en": 0.0}}}, "0 is not more than 0"),
        ({"max_perplexity": {"en": 5.0}}, "max_perplexity"),
        ({"low_percentile": 5.0}, "low_percentile"),
        ({"max_perplexities": {}}, "max_perplexities"),
    ],
)
def test_refuses_limits_that_cannot_be_meant(model: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises((UserError, pydantic.ValidationError), match=message):
        stage_of(Perplexity, models={"en": model}, **parameters)


def test_a_missing_or_broken_model_is_the_users_to_fix(documents: Batches, tmp_path: Path) -> None:
    broken = tmp_path / "broken.arpa"
    broken.write_text(ARPA.replace("ngram 2=3", "ngram 2=4"))
    for path, message in ((tmp_path / "absent", "no language model at"), (broken, "KenLM cannot read")):
        with pytest.raises(UserError, match=message):
            judge(documents, ["x"], models={"en": str(path)})


def test_a_model_for_which_memory_is_short_is_not_told_as_a_wrong_one(tmp_path: Path) -> None:
    large = tmp_path / "large.arpa"
    large.write_text(ARPA.replace("ngram 2=3", f"ngram 2={10**9}"))
    script = (
        "import resource, sys\nfrom stages.judges.perplexity import _load\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "try: _load(sys.argv[1])\n"
        "except OSError as error: print(error.errno, error.filename)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(large)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.stdout == f"{errno.ENOMEM} {large}\n"


def test_loading_prints_nothing(documents: Batches, model: str, capfd: pytest.CaptureFixture[str]) -> None:
    judge(documents, ["x"], models={"en": model})
    assert capfd.readouterr() == ("", "")


def test_models_are_checked_by_their_first_bytes_without_loading_any(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: str) -> None:
        raise AssertionError(f"loaded {path}")

    monkeypatch.setattr("stages.judges.perplexity._load", load)
    other, absent = tmp_path / "words.txt", str(tmp_path / "absent")
    other.write_text("cat\ndog\n")
    # A model that the run is to fit has no path yet.
    stage_of(Perplexity, models={"en": model, "de": ""}).check_files()
    for path, message in ((str(other), "KenLM cannot read"), (absent, "no language model at")):
        with pytest.raises(UserError, match=message):
            stage_of(Perplexity, models={"en": model, "fr": path}).check_files()


def test_limits_that_do_not_cross_are_accepted(model: str) -> None:
    for low, high in (
        ({"language": {"en": 5.0}, "default": 90.0}, {"language": {"en": 5.0}, "default": 90.0}),
        ({"language": {"en": 5.0}}, {"domain": {"web": 1.0}}),
        ({"percentile": 50, "by": "language"}, {"percentile": 5}),
        ({"percentile": 50}, 5.0),
    ):
        stage_of(Perplexity, models={"en": model}, min_perplexity=low, max_perplexity=high)


def _unpacked(shared_data: Path, tmp_path: Path, language: str) -> str:
    name = f"kenlm_{language}_word5_p02333_q8.trie.bin"
    target = tmp_path / name
    with zstandard.open(shared_data / "models" / "derived" / f"{name}.zst", "rb") as packed:
        target.write_bytes(packed.read())
    return str(target)


@pytest.mark.shared_data
@pytest.mark.parametrize("language", ["en", "ru"])
def test_gold_scores_of_a_real_model(shared_data: Path, tmp_path: Path, documents: Batches, language: str) -> None:
    path = _unpacked(shared_data, tmp_path, language)
    text = (shared_data / "models" / "derived" / f"kenlm_{language}_gold_scores.tsv").read_text("utf-8")
    gold = [row.split("\t") for row in text.splitlines()]
    _, scores = judge(documents, [row[3] for row in gold], language, models={language: path})
    from stages.judges.perplexity import _load

    for row, score in zip(gold, scores, strict=True):
        assert math.log10(score) == pytest.approx(math.log10(float(row[2])), abs=1.1e-4)
        assert load_once(_load, path).score(row[3]) == pytest.approx(float(row[1]), abs=1e-3)


@pytest.mark.shared_data
def test_perplexity_tells_documents_that_people_would_keep(
    shared_data: Path, tmp_path: Path, documents: Batches
) -> None:
    with zstandard.open(shared_data / "quality" / "dclm_human_labels.jsonl.zst", "rb") as file:
        rows = [json.loads(line) for line in io.TextIOWrapper(file, "utf-8")]
    model = _unpacked(shared_data, tmp_path, "en")
    _, scores = judge(documents, [row["text"] for row in rows], models={"en": model})
    good = np.array([score for score, row in zip(scores, rows, strict=True) if row["label"]])
    bad = np.array([score for score, row in zip(scores, rows, strict=True) if not row["label"]])
    wins = (good[:, None] < bad).mean() + (good[:, None] == bad).mean() / 2
    assert wins > 0.65  # ROC-AUC: 0.674 measured


def test_score_of_nothing_is_nan() -> None:
    exponent, tokens = log10_perplexity(None, "", 10)
    assert math.isnan(exponent)
    assert tokens == 0
