"""JSON files that carry a checksum of their own value: whoever opens one knows that it is what was written."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from shards.errors import IncompleteError
from shards.store import Store

SEAL: Final = "sha256"
"""Key of the checksum, beside the value's own keys."""


def canonical(value: Any) -> str:
    """Return a JSON-able value in canonical form: keys sorted, no blanks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class UnsealedError(IncompleteError):
    """A JSON file without a checksum, where one belongs."""


def digest_of(value: Any) -> str:
    """Return the sha256, in hex, of a JSON-able value in canonical form."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def write_sealed(store: Store, path: str, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, keys in the order given: the same value gives the same bytes."""
    store.write_json(path, {**value, SEAL: digest_of(value)})


def read_sealed(store: Store, path: str) -> dict[str, Any]:
    """Return the object that ``write_sealed`` wrote.

    Raises:
        IncompleteError: if it is missing, not JSON, or not what was written.
    """
    value = store.read_json(path)
    if isinstance(value, dict) and SEAL not in value:
        raise UnsealedError(
            f"{path} is not as this version of headrace writes it: it has no checksum",
            place=store.root,
            remedy="Run the recipe again; if an earlier version wrote the folder, use a new --out folder",
        )
    # A bit that flips in an exponent makes an infinity, which has no canonical form.
    with contextlib.suppress(ValueError):
        if isinstance(value, dict) and value.pop(SEAL) == digest_of(value):
            return value
    raise IncompleteError(
        f"{path} is not what was written: its content has changed since",
        place=store.root,
        remedy="Run the recipe again; finished work is kept",
    )
