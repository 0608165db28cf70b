"""What a run will need on disk and in memory, told before it starts, and a refusal where that cannot fit.

    text      = sum over files of bytes x expansion of the container x share of it that is text, x the recipe's sample
    documents = text / 3 kB
    disk      = text x (kept text under zstd + tokens + shingle sets of candidates)
                + documents x (signature, band keys, hashes, verdict, companion) + models + checkpoints
    worker    = process + models + the largest of: a shuffle's range, components, one huge record
    training  = ranks x (process + parameters x bytes of the ZeRO stage + activations + logits)

Nothing is assumed to be dropped, so the disk figure errs upwards; every constant below says where it comes from.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pipelines.plan import Plan
from pipelines.recipe import Recipe
from pipelines.workspace import Workspace
from shards.rank_memory import rank_bytes
from shards.schema import MAX_BATCH_BYTES
from shards.training import ModelSettings

# Text in a file by its kind, as a multiple of the file's size. Of Common Crawl's monthly releases, gzipped WET files
# are a tenth of the gzipped WARC files, which unpack to about five times their size, and WET files to 2.5 times. JSONL
# of prose packs 3 to 3.5 times; Parquet has packed columns inside.
TEXT_PER_BYTE: Final[Mapping[str, float]] = {
    "warc": 0.08,
    "warc.gz": 0.35,
    "wet": 0.95,
    "wet.gz": 2.6,
    "jsonl": 1.0,
    "jsonl.gz": 3.0,
    "jsonl.zst": 3.5,
    "parquet": 2.5,
    "unknown": 1.0,
    "unknown.gz": 3.0,
    "unknown.zst": 3.5,
}
# A page of the web holds 2 to 6 kB of text; more and smaller documents cost more rows.
TEXT_BYTES_PER_DOCUMENT: Final = 3_000
# Kept text under zstd at pyarrow's level 1.
ZSTD_SHARE: Final = 0.45
# English under a byte-level BPE of 32,768: 4.2 bytes a token.
BYTES_PER_TOKEN: Final = 4.0
# Shingle sets are kept for candidates only: 8 bytes a word of about 6, for a third of the documents.
SHINGLE_SHARE: Final = 0.45
# A document's rows in the tables of verdicts, keys, drops and companions, beside its signature.
ROW_BYTES: Final = 220
# Master weights and two moments in fp32 (arXiv 1910.02054).
CHECKPOINT_BYTES_PER_PARAMETER: Final = 12

# A process with Beam, pyarrow, numba and fastText loaded, on a small crawl: measured 350 to 450 MB.
WORKER_BYTES: Final = 500 << 20
# Copies of a batch on its way: as read, payload and text, columns of a stage, Beam's own buffer, the writer's.
BATCH_COPIES: Final = 12
# A huge record is held as bytes of the container, payload, text, its code points and a stage's copy.
RECORD_COPIES: Final = 8
# A range of keys, sorted by several columns and merged.
SHUFFLE_COPIES: Final = 6
# Blocks in the making on either side, and one split's signatures.
SHUFFLE_BYTES: Final = 160 << 20
# A band key, as it is shuffled.
SHUFFLED_BYTES_PER_KEY: Final = 24
# Merging links into components, in one worker: ids, roots and parents of those in any, and a chunk in the making.
COMPONENT_BYTES: Final = 40
# Fitting a language model holds 70 bytes for each n-gram; a word of 6 bytes begins one of each order, most of them new.
LM_BYTES_PER_NGRAM: Final = 70
ARPA_BYTES_PER_NGRAM: Final = 40
LOADED_BYTES_PER_NGRAM: Final = 30
LM_NGRAMS_PER_TEXT_BYTE: Final = 0.11
# Counting words for BPE: a table of distinct words and their pairs.
BPE_BYTES_PER_TEXT_BYTE: Final = 0.5


@dataclass(frozen=True)
class Estimate:
    """Bytes that a run needs: on disk, per worker, in the driver, and for training on all its ranks together."""

    text_bytes: int
    documents: int
    disk_bytes: int
    worker_bytes: int
    driver_bytes: int
    training_bytes: int
    workers: int

    @property
    def curation_bytes(self) -> int:
        """Memory of driver and workers together; one worker is the driver itself."""
        return self.driver_bytes + (self.workers if self.workers > 1 else 0) * self.worker_bytes


def estimate(
    recipe: Recipe,
    plan: Plan,
    *,
    workers: int,
    ranks: int = 1,
    train: bool = True,
    model_bytes: int = 0,
    reference_bytes: int = 0,
) -> Estimate:
    """Estimate what a run needs.

    Args:
        recipe: the recipe.
        plan: its splits.
        workers: local processes; 0 where another runner does the work.
        ranks: processes of training on this machine.
        train: whether the recipe's training follows.
        model_bytes: bytes of the models and lists that every worker loads.
        reference_bytes: bytes of reference text that language models are fitted on.
    """
    text = sum(_text_bytes(recipe, plan)) * recipe.sample
    rows = text / TEXT_BYTES_PER_DOCUMENT
    signature = 4 * recipe.dedup.permutations if recipe.dedup.near else 0
    token_bytes = 2 if recipe.tokenizer.vocab_size <= 1 << 16 else 4
    per_text = ZSTD_SHARE + token_bytes / BYTES_PER_TOKEN + (SHINGLE_SHARE if recipe.dedup.near else 0.0)
    ngrams = _ngrams(recipe, reference_bytes)
    keys = SHUFFLED_BYTES_PER_KEY * signature // 28
    disk = text * per_text + rows * (ROW_BYTES + signature + keys) + ARPA_BYTES_PER_NGRAM * ngrams
    worker = WORKER_BYTES + model_bytes + LOADED_BYTES_PER_NGRAM * ngrams + _peak_bytes(recipe, text, rows)
    fit = BPE_BYTES_PER_TEXT_BYTE * min(text, recipe.tokenizer.sample_bytes) if not recipe.tokenizer.file else 0.0
    driver = WORKER_BYTES + max(LM_BYTES_PER_NGRAM * ngrams, fit)
    return Estimate(
        text_bytes=int(text),
        documents=int(rows),
        disk_bytes=int(disk) + (_checkpoint_bytes(recipe) if train else 0),
        worker_bytes=int(worker),
        driver_bytes=int(max(driver, worker if workers == 1 else 0)),
        training_bytes=_training_bytes(recipe, ranks) if train else 0,
        workers=workers,
    )


def _text_bytes(recipe: Recipe, plan: Plan) -> list[float]:
    """Return the bytes of text in the sources of each ``[[sources]]`` table."""
    found = [0.0] * len(recipe.sources)
    for path, size, position in plan.rows():
        found[position] += size * TEXT_PER_BYTE[kind_of(path, recipe.sources[position].format)]
    return found


def kind_of(path: str, declared: str = "auto") -> str:
    """Return the key of ``TEXT_PER_BYTE`` for a file, by its name; content is looked at only when it is read."""
    name = path.lower().rsplit("/", 1)[-1]
    packing = next((end for end in (".gz", ".zst") if name.endswith(end)), "")
    parts = name.split(".")[1:]
    if declared == "parquet" or "parquet" in parts:
        return "parquet"
    if declared == "wet" or "wet" in parts:
        kind = "wet"
    elif declared == "warc" or "warc" in parts:
        kind = "warc"
    elif declared == "jsonl" or {"jsonl", "json", "ndjson"} & set(parts):
        kind = "jsonl"
    else:
        kind = "unknown"
    return kind + packing if kind + packing in TEXT_PER_BYTE else kind + ".gz"


def _ngrams(recipe: Recipe, reference_bytes: int) -> float:
    orders = [lm.order for lm in recipe.lm if lm.corpus]
    return LM_NGRAMS_PER_TEXT_BYTE * reference_bytes * max(orders, default=0)


def _peak_bytes(recipe: Recipe, text: float, rows: float) -> float:
    """Return what the hungriest pass of a worker holds: passes come one after the other."""
    record = max((source.max_record_bytes for source in recipe.sources), default=0)
    reading = BATCH_COPIES * MAX_BATCH_BYTES + RECORD_COPIES * min(record, max(text, 1.0))
    keys = rows * SHUFFLED_BYTES_PER_KEY * max(1, recipe.dedup.permutations // 7)
    shuffle = SHUFFLE_COPIES * min(recipe.dedup.range_bytes, keys) + min(SHUFFLE_BYTES, keys)
    components = COMPONENT_BYTES * rows if recipe.dedup.near else 0.0
    writing = recipe.shards.target_bytes * len({source.domain for source in recipe.sources})
    return max(reading, shuffle, components, min(writing, text))


def _checkpoint_bytes(recipe: Recipe) -> int:
    if recipe.training is None:
        return 0
    # One more is written before the oldest goes; the final weights are another third.
    copies = recipe.training.keep_checkpoints + 2
    return copies * CHECKPOINT_BYTES_PER_PARAMETER * _parameters(recipe)


def _parameters(recipe: Recipe) -> int:
    return (recipe.model or ModelSettings()).parameters(recipe.tokenizer.vocab_size)


def _training_bytes(recipe: Recipe, ranks: int) -> int:
    if recipe.training is None or recipe.schedule is None:
        return 0
    contexts = [phase.context_tokens for phase in recipe.schedule.phases]
    model, vocabulary = recipe.model or ModelSettings(), recipe.tokenizer.vocab_size
    return ranks * rank_bytes(model, recipe.training, vocabulary, contexts, ranks)


def estimate_run(workspace: Workspace, plan: Plan, *, workers: int, ranks: int, train: bool = True) -> Estimate:
    """Estimate a run, with the sizes of the models, lists and reference texts that its recipe names."""
    from pipelines.chain import build_chain, build_edits, fitted_languages
    from pipelines.planning.reference import reference_files

    fitted = fitted_languages(workspace.recipe)
    pending = dict.fromkeys((lm.language for lm in fitted), "")
    chain = [*build_chain(workspace, pending), *build_edits(workspace, pending)]
    files = {path for stage in chain for path in stage.files() if path}
    reference = {path for lm in fitted for path in reference_files(workspace, lm.corpus, "recipe, key lm")}
    return estimate(
        workspace.recipe,
        plan,
        workers=workers,
        ranks=ranks,
        train=train,
        model_bytes=sum(os.path.getsize(path) for path in files),
        reference_bytes=sum(os.path.getsize(path) for path in reference),
    )
