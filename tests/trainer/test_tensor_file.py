from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from shards.errors import IncompleteError
from trainer.parts import Part, first_row
from trainer.tensor_file import Chunk, overlapping, read_rows, write_tensors


def parts_of(tensors: dict[str, torch.Tensor], rank: int, ranks: int, *, empty: bool = False) -> dict[str, Part]:
    found = {}
    for name, whole in tensors.items():
        first, end = (first_row(len(whole), number, ranks) for number in (rank, rank + 1))
        rows = whole[first:end].clone()
        found[name] = Part(torch.full_like(rows, -1) if empty else rows, whole.shape, first)
    return found


@given(written=st.integers(1, 5), read=st.integers(1, 5), rows=st.integers(1, 11))
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_ranks_reads_what_any_number_wrote(tmp_path: Path, written: int, read: int, rows: int) -> None:
    tensors = {"matrix": torch.randn(rows, 3), "vector": torch.randn(rows + 2)}
    chunks = {}
    for rank in range(written):
        path = tmp_path / f"{rank}.safetensors"
        listed = write_tensors(path, parts_of(tensors, rank, written))
        chunks[path] = {name: Chunk.parse(value) for name, value in listed.items()}
    for rank in range(read):
        for name, part in parts_of(tensors, rank, read, empty=True).items():
            for path, chunk, span in overlapping(chunks, name, part):
                data = read_rows(path, chunk)[span.start - chunk.first : span.stop - chunk.first]
                part.tensor[span.start - part.first : span.stop - part.first] = data
            assert torch.equal(part.tensor, tensors[name][part.first : part.first + len(part.tensor)])


def test_the_file_is_one_that_others_read(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(3, 2), "b": torch.randn(5)}
    write_tensors(tmp_path / "x.safetensors", parts_of(tensors, 0, 1))
    loaded = load_file(tmp_path / "x.safetensors")
    assert all(torch.equal(loaded[name], tensor) for name, tensor in tensors.items())


def test_only_what_is_read_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    listed = write_tensors(path, parts_of({"a": torch.ones(3, 2), "b": torch.ones(5)}, 0, 1))
    chunks = {name: Chunk.parse(value) for name, value in listed.items()}
    data = bytearray(path.read_bytes())
    data[chunks["b"].begin] ^= 1
    path.write_bytes(data)
    assert torch.equal(read_rows(path, chunks["a"]), torch.ones(3, 2))
    with pytest.raises(IncompleteError, match="not what was written"):
        read_rows(path, chunks["b"])
