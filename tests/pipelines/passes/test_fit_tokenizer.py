from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.beam.child import CallError, ChildStartError
from pipelines.passes.fit_tokenizer import UNFIT, Sample, fit
from pipelines.tables import TableFile, publish_table
from pipelines.view import ViewFiles, documents, view_files
from shards.errors import IncompleteError, UserError
from shards.store import Store
from stages.tokenizer import fit_bpe
from tests.pipelines.beam.killers import DEATHS, train, train_little, train_nothing
from tests.pipelines.support import flip

# Starts processes.
pytestmark = pytest.mark.integration

END = "<|endoftext|>"
TEXTS = [f"The mill and the {word} by the river" for word in ("weir", "race", "sluice", "wheel")] * 5


def survivors_of(made: Any) -> list[dict[str, Any]]:
    """The rows of all survivors, read as a worker does."""
    batches = (batch for files in view_files(made.run).values() for batch in documents(made.run.store, files))
    return [row for batch in batches for row in batch.to_pylist()]


def sample_of(root: Path, splits: Sequence[Sequence[str]], rows: int = 8, gone: Sequence[int] = ()) -> Sample:
    """A sample of all texts, in splits of batches of so many rows; doc_ids count from 100."""
    store, entries, doc_id = Store(root), [], 100
    for number, texts in enumerate(splits):
        table = pa.table({"doc_id": pa.array(range(doc_id, doc_id + len(texts)), pa.int64()), "text": list(texts)})
        doc_id += len(texts)
        with store.scratch() as scratch:
            file = TableFile(scratch / "table.arrow")
            for batch in table.to_batches(max_chunksize=rows):
                file.write(batch)
            judged = file.publish(store, "documents", f"{number}")
        drops = publish_table(store, pa.table({"doc_id": pa.array(gone, pa.int64())}), "drops", f"{number}")
        entries.append(ViewFiles(judged, drops))
    return Sample(str(root), entries, 1.0, 7)


def test_survivors_are_what_nothing_dropped(made: Any) -> None:
    found = survivors_of(made)
    kept = [row["doc_id"] for row in made.verdicts() if row["dropped_by"] is None]
    assert [row["doc_id"] for row in found] == kept
    assert all(row["text"] for row in found)


def test_the_fit_is_that_of_all_texts_where_none_fails(tmp_path: Path) -> None:
    text, unfit = fit(
        sample_of(tmp_path, [TEXTS, TEXTS[:3]], gone=[101]), functools.partial(fit_bpe, end_of_text=END), 300
    )
    assert text == fit_bpe([TEXTS[0], *TEXTS[2:], *TEXTS[:3]], 300, END)
    assert unfit.equals(UNFIT.empty_table())


def test_texts_that_kill_or_fail_are_left_out_and_named_wherever_they_lie(tmp_path: Path) -> None:
    deadly = {0: "!segv", 7: "!raise", 8: "!panic", 9: "!kill", 19: "!abort", 20: "!exit", 22: "!leave"}
    texts = [deadly.get(row, text) for row, text in enumerate([*TEXTS, *TEXTS[:3]])]
    text, unfit = fit(sample_of(tmp_path, [texts[:20], texts[20:]]), train, 300)
    assert text == fit_bpe([text for text in texts if not text.startswith("!")], 300, END)
    errors = {"!raise": "ValueError: met", "!panic": "PanicError: met"}
    expected = [
        {
            "doc_id": 100 + row,
            "reason": "killed_process" if what in DEATHS else "stage_error",
            "detail": DEATHS.get(what) or errors[what],
        }
        for row, what in deadly.items()
    ]
    assert unfit.to_pylist() == expected
    assert unfit.schema == UNFIT


def test_where_no_document_is_to_blame_none_is_blamed(tmp_path: Path) -> None:
    sample = sample_of(tmp_path, [TEXTS[:4]], rows=2)
    with pytest.raises(
        UserError, match=r"ended its process \(SIGKILL\), and no single document does.*lower sample_bytes"
    ):
        fit(sample, train_little, 300)
    with pytest.raises(ChildStartError, match="the fit of the tokeniser ends its process on any document: SIGSEGV"):
        fit(sample, train_nothing, 300)
    with pytest.raises(UserError, match="'T' is an ordinary token"):
        fit(sample, functools.partial(fit_bpe, end_of_text="T"), 300)
    with pytest.raises(CallError, match="TypeError"):
        fit(sample, functools.partial(fit_bpe, end_of_text=None), 300)  # type: ignore[arg-type]


def test_a_damaged_document_file_is_found_in_the_child(tmp_path: Path) -> None:
    sample = sample_of(tmp_path, [TEXTS])
    flip(tmp_path / sample.splits[0][0].path)
    with pytest.raises(IncompleteError, match="is not what was written"):
        fit(sample, train, 300)
    assert not (tmp_path / sample.splits[0][0].path).exists()
