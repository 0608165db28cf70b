from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipelines.passes.characters import CHARACTERS, edit_columns, of_edits, of_scores, summed

KEYS = ("edited_by", "reason", "language", "domain")
LINKS = st.sampled_from(["mask", "package.module:Lines"])
EDITS = st.lists(
    st.fixed_dictionaries(
        {
            "doc_id": st.integers(0, 5),
            "edited_by": LINKS,
            "reason": st.sampled_from(["a", "b"]),
            "removed_chars": st.integers(0, 9),
            "inserted_chars": st.integers(0, 9),
        }
    ),
    max_size=20,
)
TYPES = pa.schema([("doc_id", pa.int64()), *CHARACTERS]).remove(5)


def with_labels(row: dict[str, Any]) -> dict[str, Any]:
    """A document has one language and one domain."""
    return {"language": "en" if row["doc_id"] % 2 else "de", "domain": "web" if row["doc_id"] < 4 else "books"} | row


def plain_sums(edits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    removed, inserted = Counter[Any](), Counter[Any]()
    documents: dict[Any, set[int]] = {}
    for row in map(with_labels, edits):
        key = tuple(row[name] for name in KEYS)
        documents.setdefault(key, set()).add(row["doc_id"])
        removed[key] += row["removed_chars"]
        inserted[key] += row["inserted_chars"]
    return [
        {
            **dict(zip(KEYS, key, strict=True)),
            "documents": len(documents[key]),
            "removed_chars": removed[key],
            "inserted_chars": inserted[key],
        }
        for key in sorted(documents)
    ]


@given(EDITS, st.integers(0, 6))
def test_edits_are_summed_by_document_and_group_in_any_parts(edits: list[dict[str, Any]], cut: int) -> None:
    rows = list(map(with_labels, edits))
    parts = [[row for row in rows if (row["doc_id"] < cut) is first] for first in (True, False)]
    found = summed(of_edits(pa.Table.from_pylist(part, TYPES)) for part in parts)
    assert found.schema == CHARACTERS
    assert found.to_pylist() == plain_sums(edits)
    assert of_edits(pa.Table.from_pylist(rows, TYPES)).to_pylist() == found.to_pylist()


@given(EDITS)
def test_scores_of_verdicts_give_the_same_sums(edits: list[dict[str, Any]]) -> None:
    changed = [row for row in edits if row["removed_chars"] or row["inserted_chars"]]
    verdicts: list[dict[str, Any]] = [with_labels({"doc_id": doc_id}) for doc_id in range(6)]
    names = [f"{link}.{kind}.{reason}" for link in ("mask", "package.module:Lines") for reason in ("a", "b")
             for kind in ("removed_chars", "inserted_chars")]  # fmt: skip
    for verdict in verdicts:
        verdict |= dict.fromkeys(names)
    for row in changed:
        for kind in ("removed_chars", "inserted_chars"):
            name = f"{row['edited_by']}.{kind}.{row['reason']}"
            verdicts[row["doc_id"]][name] = (verdicts[row["doc_id"]][name] or 0) + row[kind]
    schema = pa.schema([("doc_id", pa.int64()), ("language", pa.string()), ("domain", pa.string()),
                        *((name, pa.int64()) for name in names)])  # fmt: skip
    table = pa.Table.from_pylist(verdicts, schema)
    assert edit_columns(table.column_names) == names
    links = ["mask", "package.module:Lines"]
    ended = [None, "mask", "package.module:Lines", "read", "mask:late", "near_dedup_v1"]
    assert of_scores(table.append_column("dropped_by", pa.array(ended)), links).to_pylist() == plain_sums(
        [row for row in changed if row["doc_id"] != 1 or row["edited_by"] == "mask"]
    )


def test_without_edits_there_are_no_sums() -> None:
    assert summed([]).num_rows == 0
    table = pa.table({"doc_id": [1], "dropped_by": pa.nulls(1, pa.string()), "mask.words": [3]})
    assert of_scores(table, ["mask"]).num_rows == 0
