"""*fit tokeniser*: a byte-level BPE fitted on a sample of survivors, or the tokeniser that the recipe names."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.beam.base import DriverPass
from pipelines.inspection.funnel import main_losses
from pipelines.passes.keys import is_in, split_names
from pipelines.tables import read_batches, read_table
from pipelines.workspace import Run, Workspace
from shards.errors import UserError
from shards.store import hash_file
from stages.text.hashing import below_share, splitmix64
from stages.tokenizer import Encoder, fit_bpe, load_encoder


def survivors(run: Run, split: str) -> Iterator[pa.RecordBatch]:
    """Yield the documents of a split that nothing dropped, batch by batch, in doc_id order."""
    drops = read_table(run.store, run.folder("drops").require(split).files["drops"], ["doc_id"])
    gone = drops.column("doc_id").to_numpy()
    for batch in read_batches(run.store, run.folder("judge").require(split).files["documents"]):
        yield batch.filter(pa.array(~is_in(batch.column("doc_id").to_numpy(), gone)))


class FitTokenizer(DriverPass):
    """The run's tokeniser, as a published ``tokenizer.json``."""

    name = "tokenizer"

    def section(self, run: Run) -> Any:
        """The settings, and the content of a named file; only a fitted tokeniser depends on the survivors."""
        settings = run.recipe.tokenizer
        content = hash_file(Path(tokenizer_path(run.workspace)))[0] if settings.file else None
        above = None if settings.file else [run.manifest(name)["units"] for name in ("judge", "drops")]
        return [settings.model_dump(exclude={"file"}), run.recipe.seed, content, above]

    def work(self, run: Run) -> None:
        """Fit or copy."""
        settings = run.recipe.tokenizer
        if settings.file:
            text = Path(tokenizer_path(run.workspace)).read_bytes().decode("utf-8")
        else:
            text = fit_bpe(self._sample(run), settings.vocab_size, settings.end_of_text)
        with run.store.scratch() as scratch:
            path = scratch / "tokenizer.json"
            path.write_bytes(text.encode("utf-8"))
            encoder = Encoder(str(path))
            statistics = {
                "vocab_size": encoder.vocab_size,
                "end_of_text": encoder.token_id(settings.end_of_text, "recipe, key tokenizer.end_of_text"),
            }
            entry = run.store.publish(path, self.name, "tokenizer", 1)
        run.commit(self.name, self.UNIT, {"tokenizer": entry}, statistics)

    def _sample(self, run: Run) -> Iterator[str]:
        total = sum(unit["statistics"]["survivor_bytes"] for unit in run.manifest("drops")["units"])
        if total == 0:
            raise UserError(
                "no document survived, so there is nothing to fit a tokeniser on",
                place=f"{run.root}: {main_losses(run)}",
                remedy=f"Read what was dropped with 'headrace inspect {run.root}', and mend the recipe",
            )
        share = min(1.0, run.recipe.tokenizer.sample_bytes / total)
        for split in split_names(run):
            for batch in survivors(run, split):
                keys = batch.column("doc_id").to_numpy().astype(np.uint64) ^ np.uint64(run.recipe.seed)
                # Mixed twice: a run's own sample keeps low hashes, of which this is to be a share once more.
                chosen = below_share(splitmix64(splitmix64(keys)), share)
                yield from batch.column("text").filter(pa.array(chosen)).to_pylist()


def tokenizer_path(workspace: Workspace) -> str:
    """Return the path of the tokeniser that the recipe names.

    Raises:
        UserError: if it is missing.
    """
    path = workspace.input_path(workspace.recipe.tokenizer.file or "")
    if not Path(path).is_file():
        raise UserError("the tokeniser's file is missing", place=f"recipe, key tokenizer.file: {path}")
    return path


def check_tokenizer(workspace: Workspace) -> None:
    """Check the tokeniser that the recipe names, if any, before documents are read.

    Raises:
        UserError: if it is missing, no tokeniser, or without the end-of-text token.
    """
    settings = workspace.recipe.tokenizer
    if settings.file:
        Encoder(tokenizer_path(workspace)).token_id(settings.end_of_text, "recipe, key tokenizer.end_of_text")


@functools.lru_cache(maxsize=1)
def encoder_of(run: Run) -> tuple[Encoder, int]:
    """Return (encoder, id of the end-of-text token) of a run whose tokeniser is ready."""
    marker = run.folder("tokenizer").require(DriverPass.UNIT)
    encoder = load_encoder(run.store.local_copy(marker.files["tokenizer"]))
    return encoder, int(marker.statistics["end_of_text"])
