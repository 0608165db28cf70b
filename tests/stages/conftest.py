from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from shards.schema import DOCUMENT, UNKNOWN_LANGUAGE

Batches = Callable[..., pa.RecordBatch]

_DEFAULTS: dict[str, Any] = {
    "source_index": 0,
    "offset": 0,
    "language": UNKNOWN_LANGUAGE,
    "domain": "web",
    "failed": False,
}


def make_documents(rows: int, **columns: Sequence[Any]) -> pa.RecordBatch:
    """Return a batch of ``rows`` documents with these columns; others hold defaults or null."""
    values = {"doc_id": range(rows), **columns}
    arrays = [pa.array(values.get(f.name, [_DEFAULTS.get(f.name)] * rows), f.type) for f in DOCUMENT]
    return pa.RecordBatch.from_arrays(arrays, schema=DOCUMENT)


@pytest.fixture
def documents() -> Batches:
    return make_documents


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real files beside the checkout."""
    folder = Path(__file__).parents[2].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the shared data folder beside the checkout")
    return folder
