from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from trainer.attention import Backend, attend, choose_backend, lay_out

CPU = torch.device("cpu")


def _states(rows: int, context: int, heads: int, kv_heads: int, width: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = ((rows, context, heads, width), (rows, context, kv_heads, width), (rows, context, kv_heads, width))
    query, key, value = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return query, key, value


def _by_hand(query: Tensor, key: Tensor, value: Tensor, segments: Tensor) -> Tensor:
    """Attend with one softmax per query, straight from the definition."""
    out = torch.zeros_like(query)
    groups = query.shape[2] // key.shape[2]
    for row in range(query.shape[0]):
        start = 0
        for at in range(query.shape[1]):
            if at and segments[row, at] != segments[row, at - 1]:
                start = at
            for head in range(query.shape[2]):
                scores = key[row, start : at + 1, head // groups] @ query[row, at, head] / query.shape[3] ** 0.5
                out[row, at, head] = scores.softmax(0) @ value[row, start : at + 1, head // groups]
    return out


segment_rows = st.integers(1, 24).flatmap(
    lambda context: st.lists(
        st.lists(st.integers(-1, 2), min_size=context, max_size=context).map(tuple), min_size=1, max_size=3
    )
)


@given(rows=segment_rows, groups=st.sampled_from([1, 2]), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_every_backend_follows_the_definition(rows: list[tuple[int, ...]], groups: int, seed: int) -> None:
    segments = torch.tensor(rows)
    query, key, value = _states(*segments.shape, 2, 2 // groups, 4, seed)
    expected = _by_hand(query, key, value, segments)
    for backend in ("documents", "dense"):
        torch.testing.assert_close(attend(query, key, value, lay_out(segments, backend, CPU)), expected)


# Uncompiled, as it must be without a compiler for the device.
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("groups", [1, 2])
def test_flex_agrees_forward(groups: int) -> None:
    segments = torch.tensor([[0] * 40 + [1] * 88, [3] * 128])
    query, key, value = (t.float() for t in _states(2, 128, 4, 4 // groups, 16, 0))
    expected = attend(query, key, value, lay_out(segments, "documents", CPU))
    torch.testing.assert_close(attend(query, key, value, lay_out(segments, "flex", CPU)), expected)


@pytest.mark.parametrize("backend", ["documents", "dense"])
def test_no_gradient_crosses_documents(backend: Backend) -> None:
    segments = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 0]])
    query, key, value = (t.requires_grad_() for t in _states(1, 8, 1, 1, 4, 1))
    attend(query, key, value, lay_out(segments, backend, CPU))[0, 3:7].sum().backward()
    assert value.grad is not None
    touched = value.grad.abs().sum((0, 2, 3)) > 0
    assert touched.tolist() == [False, False, False, True, True, True, True, False]


def test_gradients_agree() -> None:
    segments = torch.tensor([[0, 0, 1, 1, 1, 2], [4, 4, 4, 4, 5, 5]])
    gradients = []
    for backend in ("documents", "dense"):
        leaves = [t.requires_grad_() for t in _states(2, 6, 2, 1, 4, 3)]
        (attend(*leaves, lay_out(segments, backend, CPU)) ** 2).sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_a_row_that_is_one_document_is_seen_as_such() -> None:
    assert lay_out(torch.tensor([[7, 7], [7, 7]]), "documents", CPU).is_whole_rows
    assert lay_out(torch.tensor([[7, 7], [7, 8]]), "documents", CPU).lengths == [2, 1, 1]


def test_the_backend_fits_the_device() -> None:
    assert choose_backend("auto", CPU) == "documents"
    assert choose_backend("auto", torch.device("cuda")) == "flex"
    assert choose_backend("dense", CPU) == "dense"
