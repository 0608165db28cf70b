from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from stages.checks import KEPT
from stages.judges.gopher_repetition import GopherRepetition
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]

OFF = {
    "max_duplicate_lines": 1.0,
    "max_duplicate_paragraphs": 1.0,
    "max_duplicate_line_chars": 1.0,
    "max_duplicate_paragraph_chars": 1.0,
    "max_top_ngram_chars": (1.0,) * 3,
    "max_duplicate_ngram_chars": (1.0,) * 6,
}


def numbered(start: int, count: int) -> str:
    return " ".join(f"w{i:03}" for i in range(start, start + count))


def reason(documents: Batches, text: str, **parameters: Any) -> tuple[str | None, float]:
    stage = stage_of(GopherRepetition, **parameters)
    verdict = stage.judge(documents(1, text=[text]))
    code = int(verdict.codes[0])
    assert verdict.value is not None
    return (None if code == KEPT else stage.reasons[code]), float(verdict.value[0])


LINES = "\n".join([numbered(0, 2)] * 4 + [numbered(10 * i, 10) for i in range(1, 6)])
PARAGRAPHS = "\n\n".join([numbered(0, 30), *(f"{numbered(100 + i, 1)}\n{numbered(120, 1)}" for i in (0, 0, 0, 1, 2))])


@pytest.mark.parametrize(
    ("text", "parameters", "why", "value"),
    [
        (LINES, {"max_duplicate_lines": 0.33}, "duplicate_lines", 3 / 9),
        (LINES, {"max_duplicate_line_chars": 0.1}, "duplicate_line_chars", 6 / 58),
        (PARAGRAPHS, {"max_duplicate_paragraphs": 0.3}, "duplicate_paragraphs", 2 / 6),
        (PARAGRAPHS, {"max_duplicate_paragraph_chars": 0.09}, "duplicate_paragraph_chars", 4 / 40),
        (f"{numbered(0, 2)} {numbered(5, 16)} {numbered(0, 2)}", {"max_top_ngram_chars": (0.19, 1, 1)},
         "top_2gram_chars", 4 / 20),
        (f"{numbered(0, 3)} {numbered(5, 14)} {numbered(0, 3)}", {"max_top_ngram_chars": (1, 0.29, 1)},
         "top_3gram_chars", 6 / 20),
        # The first occurrence of a duplicate does not count.
        (f"{numbered(0, 6)} {numbered(10, 18)} {numbered(0, 6)}", {"max_duplicate_ngram_chars": (1, 0.19, 1, 1, 1, 1)},
         "duplicate_6gram_chars", 6 / 30),
        (f"{numbered(0, 6)} {numbered(10, 18)} {numbered(0, 6)}", {"max_duplicate_ngram_chars": (1, 1, 0, 0, 0, 0)},
         None, 0),
        # Overlapping duplicates count each character once: all but the first five of ten equal words.
        ("same " * 10, {"max_duplicate_ngram_chars": (0.8, 1, 1, 1, 1, 1)}, "duplicate_5gram_chars", 9 / 10),
    ],
)  # fmt: skip
def test_each_rule_drops_for_its_own_reason(
    documents: Batches, text: str, parameters: dict[str, Any], why: str | None, value: float
) -> None:
    found, measure = reason(documents, text, **{**OFF, **parameters})
    assert found == why
    if why:
        assert measure == pytest.approx(value, abs=1e-4)


def test_every_share_is_a_score(documents: Batches) -> None:
    columns = stage_of(GopherRepetition).judge(documents(2, text=[LINES, ""])).columns
    assert set(columns) == {f"gopher_repetition_v2.{reason}" for reason in stage_of(GopherRepetition).reasons}
    assert columns["gopher_repetition_v2.duplicate_lines"].to_pylist() == [0.3333, 0.0]
    assert columns["gopher_repetition_v2.duplicate_line_chars"].to_pylist() == [0.1034, 0.0]
    assert all(0 <= share <= 1 for column in columns.values() for share in column.to_pylist())


def test_a_limit_of_an_n_may_be_one_by_language(documents: Batches) -> None:
    batch = documents(2, text=["same " * 10] * 2, language=["en", "de"])
    limits = ({"language": {"de": 0.1}, "default": 1.0}, 1.0, 1.0, 1.0, 1.0, 1.0)
    codes = stage_of(GopherRepetition, **{**OFF, "max_duplicate_ngram_chars": limits}).judge(batch).codes
    assert codes.tolist() == [KEPT, stage_of(GopherRepetition).reasons.index("duplicate_5gram_chars")]


def test_a_limit_itself_is_kept(documents: Batches) -> None:
    assert reason(documents, LINES, **{**OFF, "max_duplicate_lines": round(3 / 9, 4)})[0] is None


def test_an_empty_document_repeats_nothing(documents: Batches) -> None:
    for text in ("", " \n\n ", "word"):
        assert reason(documents, text)[0] is None


def test_one_sentence_over_and_over_is_dropped_and_prose_is_not(documents: Batches) -> None:
    sentence = "Call us now for the best prices in town and save. "
    assert reason(documents, sentence * 20)[0] == "top_2gram_chars"
    assert reason(documents, numbered(0, 300))[0] is None


def test_a_phrase_is_the_same_in_any_case_and_between_any_signs(documents: Batches) -> None:
    names = "".join(f'(Los Angeles {n}), "LOS ANGELES" {n + 50}; ' for n in range(10))
    assert reason(documents, numbered(0, 40) + names)[0] == "top_2gram_chars"


def test_time_is_linear_in_hostile_text(documents: Batches) -> None:
    # Every n-gram equal: quadratic probing or counting would take minutes.
    assert reason(documents, "a " * 2_000_000)[0] == "top_2gram_chars"


@pytest.mark.shared_data
def test_prose_passes_and_loops_of_a_language_model_do_not(documents: Batches, shared_data: Path) -> None:
    def read(name: str) -> list[dict[str, Any]]:
        with zstandard.open(shared_data / name, "rb") as file:
            return [json.loads(line) for line in io.TextIOWrapper(file, "utf-8")]

    prose = [row["text"] for row in read("text/wiki/xquad_contexts.jsonl.zst")]
    loops = [row["text"] for row in read("junk/gpt3_samples.jsonl.zst") if str(row["temperature"]) == "0.0"]
    kept = stage_of(GopherRepetition).judge(documents(len(prose), text=prose)).codes == KEPT
    # Of 2,520 paragraphs 40 are dropped: a few are lists of one name with others, in each of twelve languages.
    assert np.mean(kept) > 0.98
    assert (stage_of(GopherRepetition).judge(documents(len(loops), text=loops)).codes != KEPT).all()
