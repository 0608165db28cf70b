from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.lm import arpa
from stages.lm.arpa import NgramTable, write_arpa


def table(words: list[list[int]], prob: list[float], backoff: list[float] | None) -> NgramTable:
    width = len(words[0]) if words else 1
    return NgramTable(
        np.array(words, np.uint32).reshape(-1, width),
        np.array(prob, np.float64),
        None if backoff is None else np.array(backoff, np.float64),
    )


def written(words: list[str], tables: list[NgramTable]) -> bytes:
    file = io.BytesIO()
    write_arpa(file, words, tables)
    return file.getvalue()


def test_bytes_of_a_small_model() -> None:
    unigrams = table([[0], [1], [2]], [-1.5, 0.0, -12.00000004], [0.0, -0.25, 0.0])
    bigrams = table([[1, 2]], [-0.1], None)
    assert written(["<unk>", "<s>", "é"], [unigrams, bigrams]).decode() == (
        "\\data\\\nngram 1=3\nngram 2=1\n"
        "\n\\1-grams:\n-1.5000000\t<unk>\t0\n0\t<s>\t-0.2500000\n-12.0000000\té\t0\n"
        "\n\\2-grams:\n-0.1000000\t<s> é\n"
        "\n\\end\\\n"
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-400, 0), min_size=1, max_size=30))
def test_numbers_read_back_as_written(values: list[float]) -> None:
    ids = [[i] for i in range(len(values))]
    text = written([f"w{i}" for i in range(len(values))], [table(ids, values, values[::-1])]).decode()
    rows = [line.split("\t") for line in text.splitlines() if "\t" in line]
    assert [float(row[0]) for row in rows] == pytest.approx(values, abs=0.51e-7)
    assert [float(row[2]) for row in rows] == pytest.approx(values[::-1], abs=0.51e-7)


@pytest.mark.parametrize("slice_bytes", [1, 100, 1000])
def test_slices_change_nothing(slice_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    words = ["x" * int(n) for n in rng.integers(1, 30, 40)] + ["y" * 5000]
    ids = rng.integers(0, 41, (300, 3)).tolist()
    tables = [table(ids, (-rng.random(300) * 9).tolist(), (-rng.random(300)).tolist())]
    whole = written(words, tables)
    expected = [" ".join(words[i] for i in row) for row in ids]
    assert [line.split("\t")[1] for line in whole.decode().splitlines() if "\t" in line] == expected
    monkeypatch.setattr(arpa, "_SLICE_BYTES", slice_bytes)
    assert written(words, tables) == whole


def test_bytes_that_were_no_utf8_go_out_as_they_came() -> None:
    word = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert b"\tcaf\xe9\n" in written([word], [table([[0]], [-1.0], None)])


@pytest.mark.parametrize("bad", [0.1, float("nan"), float("-inf")])
def test_what_is_no_log_probability_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="cannot be written to an ARPA file"):
        written(["a"], [table([[0]], [bad], None)])
