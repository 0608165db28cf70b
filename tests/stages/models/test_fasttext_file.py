from __future__ import annotations

import struct
from pathlib import Path

import fasttext
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.judges.language import default_model
from stages.models.fasttext_file import labels_of


def dense_model(words: list[str], labels: list[str]) -> bytes:
    """A supervised model of two dimensions, written as fastText would."""
    head = struct.pack("<ii", 793_712_314, 12)
    arguments = struct.pack("<12i", 2, 1, 1, 1, 1, 1, 3, 3, 0, 0, 0, 100) + struct.pack("<d", 1e-4)
    dictionary = struct.pack("<iiiqq", len(words) + len(labels), len(words), len(labels), 10, -1)
    for kind, names in ((0, words), (1, labels)):
        for name in names:
            dictionary += name.encode() + b"\0" + struct.pack("<qb", 1, kind)
    vectors = [(1.0, 0.0) if i % 2 == 0 else (0.0, 1.0) for i in range(len(words))]
    outputs = [(9.0, -9.0), (-9.0, 9.0)]
    matrices = b""
    for matrix in (vectors, outputs):
        matrices += b"\0" + struct.pack("<qq", len(matrix), 2) + b"".join(struct.pack("<2f", *row) for row in matrix)
    return head + arguments + dictionary + matrices


MODEL = dense_model(["cat", "katze"], ["__label__en", "__label__de"])


def test_a_dense_file_that_fasttext_reads_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(MODEL)
    assert labels_of(str(path)) == ["__label__en", "__label__de"]
    assert fasttext.load_model(str(path)).predict(["katze", "cat"])[0] == [["__label__de"], ["__label__en"]]


def test_an_unsupervised_model_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "vectors.bin"
    path.write_bytes(dense_model(["cat", "katze"], []))
    assert labels_of(str(path)) == []


def test_the_quantised_file_is_whole_and_no_part_of_it_is(tmp_path: Path) -> None:
    data = Path(default_model()).read_bytes()
    assert set(labels_of(default_model())) == set(fasttext.load_model(default_model()).labels)
    path = tmp_path / "cut.ftz"
    for size in (0, 1, 8, 60, 100, 1_000, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match=r"ends early|ends inside|empty file|of which its layout"):
            labels_of(str(path))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(MODEL) - 1), st.integers(1, 255))
@example(91, 128)
def test_damage_is_refused_or_harmless_to_the_layout(
    tmp_path_factory: pytest.TempPathFactory, at: int, by: int
) -> None:
    path = tmp_path_factory.mktemp("model") / "model.bin"
    damaged = bytearray(MODEL)
    damaged[at] ^= by
    for data in (bytes(damaged), MODEL[:at], MODEL + bytes(by)):
        path.write_bytes(data)
        try:
            labels_of(str(path))
        except ValueError:
            continue
        assert len(data) == len(MODEL)
