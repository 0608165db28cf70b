from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pydantic
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.schema import DOCUMENT
from stages.dedup.minhash import EMPTY, signatures
from stages.judges.fingerprint import Fingerprint, fixed_binary, signature_matrix
from stages.marking import mark
from stages.text.shingles import batch_shingles
from tests.stages.support import stage_of

TEXT = st.text(
    st.one_of(
        st.sampled_from("aAeé\u0301\u0323 \n\t\u00a0\u3000\u2028\x1c\x85中.🙂"),
        st.characters(codec="utf-8"),
    ),
    max_size=30,
)


def batch_of(texts: Sequence[str | None]) -> pa.RecordBatch:
    n = len(texts)
    given = {
        "doc_id": pa.array(range(n), pa.int64()),
        "text": pa.array(texts, pa.string()),
        "source_index": pa.array([0] * n, pa.int32()),
        "offset": pa.array([0] * n, pa.int64()),
        "language": pa.array(["und"] * n),
        "domain": pa.array(["web"] * n),
        "failed": pa.array([False] * n),
    }
    arrays = [given.get(f.name, pa.nulls(n, f.type)) for f in DOCUMENT]
    return pa.RecordBatch.from_arrays(arrays, schema=DOCUMENT)


def content_hashes(texts: list[str]) -> list[bytes]:
    columns = stage_of(Fingerprint, permutations=16).judge(batch_of(texts)).columns
    hashes: list[bytes] = columns["content_hash"].to_pylist()
    return hashes


def normalised(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


@settings(deadline=None, max_examples=150)
@given(st.lists(TEXT, max_size=6))
def test_content_hashes_are_those_of_folded_text(texts: list[str]) -> None:
    expected = [xxhash.xxh3_128_digest(normalised(text).encode()) for text in texts]
    assert content_hashes(texts) == expected


@settings(deadline=None, max_examples=100)
@given(TEXT, st.lists(st.sampled_from([" ", "\n", "\u00a0", "\u2003 "]), min_size=40, max_size=40), st.booleans())
def test_equal_content_implies_equal_shingles(text: str, spaces: list[str], decompose: bool) -> None:
    other = "".join(spaces[at] if character.isspace() else character for at, character in enumerate(text))
    other = spaces[-1] + (unicodedata.normalize("NFD", other) if decompose else other)
    one, two = content_hashes([text, other])
    assert one == two
    offsets, shingles = batch_shingles(pa.array([text, other]), 3)
    assert np.array_equal(shingles[: offsets[1]], shingles[offsets[1] :])


def test_case_and_punctuation_are_content() -> None:
    assert len(set(content_hashes(["a b", "A b", "a b.", "ab"]))) == 4


@settings(deadline=None, max_examples=40)
@given(st.lists(st.one_of(st.none(), TEXT), max_size=6), st.data())
def test_cutting_a_batch_changes_nothing(texts: list[str | None], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(texts)))
    stage = stage_of(Fingerprint, shingle_words=2, permutations=64)
    batch = batch_of(texts)
    whole = mark(stage, batch)
    parts = pa.Table.from_batches([mark(stage, batch[:cut]), mark(stage, batch[cut:])])
    assert parts.to_pylist() == whole.to_pylist()


def test_columns_and_types() -> None:
    stage = Fingerprint(permutations=128)
    texts = ["the cat sat on the mat today", None, "中文", ""]
    marked = mark(stage_of(Fingerprint, permutations=128), batch_of(texts))
    for name, kind in stage.columns.items():
        assert marked.schema.field(name).type == kind
    assert marked.column("dropped_by").null_count == len(texts)
    assert marked.column("shingles").to_pylist() == [3, 0, 1, 0]
    matrix = signature_matrix(marked.column("signature"))
    assert matrix.shape == (4, 128)
    assert (matrix[[1, 3]] == EMPTY).all()
    offsets, hashes = batch_shingles(pa.array(texts), 5)
    assert np.array_equal(matrix, signatures(offsets, hashes, 128, stage.seed))


def test_rows_it_is_not_shown_are_null() -> None:
    batch = batch_of(["one two", "three four"])
    at = batch.schema.get_field_index("dropped_by")
    batch = batch.set_column(at, "dropped_by", pa.array([None, "language_v1"]))
    marked = mark(stage_of(Fingerprint), batch)
    assert marked.column("content_hash").is_valid().to_pylist() == [True, False]
    assert signature_matrix(marked.column("signature")[:1]).shape == (1, 112)
    with pytest.raises(ValueError, match="1 of 2 signatures are null"):
        signature_matrix(marked.column("signature"))


def test_signatures_survive_the_column() -> None:
    rows = np.arange(24, dtype=np.uint32).reshape(4, 6)
    column = fixed_binary(rows)
    column.validate(full=True)
    assert np.array_equal(signature_matrix(column[1:3]), rows[1:3])
    assert column[0].as_py() == rows[0].astype("<u4").tobytes()
    assert signature_matrix(fixed_binary(rows[:0])).shape == (0, 6)


def test_bands_of_its_parameters() -> None:
    assert Fingerprint().bands == (16, 7)
    assert Fingerprint(threshold=0.5, permutations=128).bands == (42, 3)


@pytest.mark.parametrize(
    "parameters",
    [
        {"shingle_words": 0},
        {"permutations": 0},
        {"threshold": 0.0},
        {"threshold": 1.5},
        {"threshold": 0.01, "permutations": 8},
        {"seed": -1},
        {"permutation": 112},
    ],
)
def test_impossible_parameters(parameters: dict[str, float]) -> None:
    with pytest.raises(pydantic.ValidationError):
        stage_of(Fingerprint, **parameters)
