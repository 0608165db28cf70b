from __future__ import annotations

import re
import time
import unicodedata
from pathlib import Path

import kenlm
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.lm import normalise
from stages.lm.normalise import MAX_LINE_TOKENS, lm_lines

DERIVED = Path(__file__).parents[3].parent / "shared" / "data" / "models" / "derived"

plain_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)


def obvious(text: str) -> list[str]:
    lines = [re.sub(r"\d", "0", unicodedata.normalize("NFKC", line).lower()) for line in text.splitlines()]
    return [joined for line in lines if (joined := " ".join(re.findall(r"\w+|[^\w\s]", line)))]


@settings(max_examples=150, deadline=None)
@given(plain_text)
def test_says_what_the_obvious_version_says(text: str) -> None:
    assert lm_lines(text) == obvious(text)


@pytest.mark.parametrize("between", ["", "a", "."])
def test_every_character_is_cut_as_the_regular_expression_cuts_it(between: str) -> None:
    points = [point for point in range(1, 0x110000) if not 0xD800 <= point < 0xE000]
    # Far fewer than all make a kernel's table; the planes beyond have no letters, so a sample of them will do.
    points = points[:0x33000] + points[0x33000::61]
    # Short lines, because long ones come in pieces, and so do long runs of marks.
    lines = (points[at : at + 50] for at in range(0, len(points), 50))
    text = "\n".join(between.join(map(chr, line)) for line in lines)
    assert lm_lines(text) == obvious(text)


def test_text_is_worked_on_in_blocks_that_leave_no_seam() -> None:
    lines = [f"Line {n}: İstanbul’s ½ …" * (n % 7) for n in range(4_000)]
    assert sum(map(len, lines)) > 3 * normalise._BLOCK_CHARS
    assert lm_lines("\n".join(lines)) == [found for line in lines for found in lm_lines(line)]


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_lines_are_independent(first: str, second: str) -> None:
    assert lm_lines(f"{first}\n{second}") == lm_lines(first) + lm_lines(second)


@settings(max_examples=150, deadline=None)
@given(st.text(st.characters(), max_size=80))
def test_every_line_is_utf8_of_tokens_that_kenlm_splits_alike(text: str) -> None:
    for line in lm_lines(text):
        assert b"\0" not in line.encode()
        assert line.encode().split() == [token.encode() for token in line.split(" ")]
        assert all(re.fullmatch(r"\w+|[^\w\s]", token) for token in line.split(" "))


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        (" \n\t\r\n ", []),
        ("Don't PANIC in 1999!\n\nOk", ["don ' t panic in 0000 !", "ok"]),
        ("ﬁve ① ٣٤ ２", ["five 0 00 0"]),
        ("<s> </s> <unk>", ["< s > < / s > < unk >"]),
        ("a\0b\ud800c", ["a b c"]),
        ("\ud83d\ude00 end", ["end"]),
        ("snake_case's", ["snake_case ' s"]),
    ],
)
def test_named_cases(text: str, lines: list[str]) -> None:
    assert lm_lines(text) == lines


def test_a_line_without_end_comes_in_pieces_that_lose_nothing() -> None:
    tokens = [f"w{chr(97 + i % 26)}" for i in range(2 * MAX_LINE_TOKENS + 5)]
    lines = lm_lines(" ".join(tokens))
    assert [len(line.split(" ")) for line in lines] == [MAX_LINE_TOKENS, MAX_LINE_TOKENS, 5]
    assert " ".join(lines).split(" ") == tokens


def test_a_line_of_exactly_the_most_tokens_is_one_line() -> None:
    assert len(lm_lines("a " * MAX_LINE_TOKENS)) == 1
    assert len(lm_lines("ab " * (MAX_LINE_TOKENS + 1))) == 2


@pytest.mark.parametrize("hostile", ["\u0301\u0327", "\u0344\u0327", "\uff9e\u0327", "\u0344" * 40 + "\u3099"])
def test_piled_up_marks_take_time_that_grows_linearly(hostile: str) -> None:
    lm_lines("Compiles the kernels.")
    began = time.process_time()
    lines = lm_lines("a" + hostile * (300_000 // len(hostile)) + "z")
    # Reordering 300,000 marks by insertion takes CPython about a minute.
    assert time.process_time() - began < 10
    assert lines[-1].split(" ")[-1] == "z"


def test_a_pile_of_marks_keeps_what_the_first_letter_takes() -> None:
    line = lm_lines("e" + "\u0301" * normalise._RUN)[0]
    assert line.startswith("é \u0301 ")


@pytest.mark.shared_data
@pytest.mark.parametrize("language", ["en", "ru"])
def test_golden_scores_of_kenlm(language: str, tmp_path: Path) -> None:
    gold, packed = (
        DERIVED / f"kenlm_{language}_gold_scores.tsv",
        DERIVED / f"kenlm_{language}_word5_p02333_q8.trie.bin.zst",
    )
    if not gold.exists() or not packed.exists():
        pytest.skip("golden scores of KenLM need the shared data folder beside the checkout")
    model_path = tmp_path / "model.bin"
    with packed.open("rb") as source, model_path.open("wb") as target:
        zstandard.ZstdDecompressor().copy_stream(source, target)
    model = kenlm.Model(str(model_path))
    rows = [row.split("\t") for row in gold.read_text(encoding="utf-8").splitlines()]
    assert len(rows) >= 60
    for _, score, perplexity, line in rows:
        # What was normalised once stays as it is; capitals and other digits come to the same.
        assert lm_lines(line) == [line]
        assert lm_lines(f"  {line.replace('0', '7').title().replace(' ', '  ')}\n") == [line]
        assert model.score(lm_lines(line)[0], bos=True, eos=True) == pytest.approx(float(score), abs=1e-3)
        assert model.perplexity(lm_lines(line)[0]) == pytest.approx(float(perplexity), rel=1e-3)
