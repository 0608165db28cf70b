"""Single documents of a run, to be read by people: seeded samples per reason, kept ones, and the trace of one.

Texts are final ones, and what was edited stands beside them. A document that a check on edited text dropped is shown as
the check saw it, and one that was dropped before as it was judged.

The same seed gives the same documents on any run with the same verdicts, whatever its splits and workers were.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.inspection.verdicts import verdicts
from pipelines.passes.characters import edit_columns
from pipelines.passes.write import SHARDS
from pipelines.run import Run
from pipelines.tables import is_in, read_table
from pipelines.view import documents, drop_files, edits_of, view_files
from shards.catalog import CATALOG_NAME, INDEX_FOLDER, ShardCatalog
from shards.errors import UserError
from shards.files import hash_file
from shards.reader import ShardSet
from shards.schema import split_doc_id
from shards.store import Store
from stages.text.hashing import splitmix64


@dataclass(frozen=True)
class Shown:
    """A document with its verdict.

    ``text`` is None where the run keeps none: failures, and drops beyond the sample. ``edits`` are those that [[edits]]
    made in it, by place: start and end in bytes of the judged text, reason, replacement, edited_by.
    """

    doc_id: int
    url: str | None
    source: str
    offset: int
    language: str
    domain: str
    dropped_by: str | None
    reason: str | None
    value: float | None
    detail: str | None
    witness: int | None
    jaccard: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    text: str | None = None
    edits: Sequence[Mapping[str, Any]] = ()
    witness_text: str | None = None
    witness_url: str | None = None


def dropped_samples(run: Run, wanted: str, per_reason: int, seed: int) -> list[Shown]:
    """Return up to ``per_reason`` dropped or failed documents for each (stage, reason) that ``wanted`` names.

    Args:
        run: a finished run.
        wanted: a stage, a reason, ``STAGE/REASON``, or ``all``.
        per_reason: how many of each; those whose text the run keeps come first.
        seed: chooses them.

    Raises:
        UserError: if nothing was dropped under that name.
    """
    sampled = _sampled_texts(run)
    drops = drop_files(run)
    names: set[str] = set()
    picked: list[tuple[tuple[str, str], tuple[bool, int], Shown]] = []
    for split, table in zip(drops, verdicts(run), strict=True):
        gone = table.filter(pc.is_valid(table.column("dropped_by")))
        late = read_table(run.store, drops[split], ["doc_id"])
        readable = np.union1d(late.column("doc_id").to_numpy(), np.fromiter(sampled, np.int64, len(sampled)))
        for stage, reason in _pairs(gone):
            names |= {stage, reason, f"{stage}/{reason}"}
            if wanted in (stage, reason, f"{stage}/{reason}", "all"):
                mine = pc.and_(pc.equal(gone.column("dropped_by"), stage), pc.equal(gone.column("reason"), reason))
                ranked = _first(gone.filter(mine), readable, per_reason, seed)
                picked += [((stage, reason), rank, _shown(run, row)) for rank, row in ranked]
    if not picked and wanted != "all":
        near = difflib.get_close_matches(wanted, sorted(names), n=1, cutoff=0.0)
        raise UserError(
            f"no document was dropped under the name {wanted!r}",
            place=run.root,
            remedy=f"Did you mean {near[0]!r}?" if near else "This run dropped no document",
        )
    picked.sort(key=lambda entry: entry[:2])
    found: list[Shown] = []
    for _, shown in _limited(picked, per_reason):
        found.append(replace(shown, text=sampled.get(shown.doc_id)))
    return _with_texts(run, found)


def kept_samples(run: Run, number: int, seed: int) -> list[Shown]:
    """Return ``number`` kept documents with their texts."""
    ranked: list[tuple[tuple[bool, int], Shown]] = []
    for table in verdicts(run):
        kept = table.filter(pc.is_null(table.column("dropped_by")))
        ranked += [(rank, _shown(run, row)) for rank, row in _first(kept, np.empty(0, np.int64), number, seed)]
        ranked = sorted(ranked, key=lambda entry: entry[0])[:number]
    return _with_texts(run, [shown for _, shown in ranked])


def document(run: Run, doc_id: int) -> Shown:
    """Return one record of the run, with its verdict, and its text where the run keeps it.

    Raises:
        UserError: if the run has no such record.
    """
    split = _split_of(run, doc_id)
    for name, table in zip(drop_files(run), verdicts(run), strict=True):
        if name == split and (rows := table.filter(pc.equal(table.column("doc_id"), doc_id)).to_pylist()):
            found = replace(_shown(run, rows[0]), text=_sampled_texts(run).get(doc_id))
            return _with_texts(run, [found])[0]
    raise UserError(f"the run has no record {doc_id}", place=run.root, remedy="doc_ids are in the verdict tables")


def traced(run: Run, place: str) -> tuple[dict[str, Any], Shown]:
    """Lead from ``DOMAIN:DOCUMENT[:TOKEN]`` in the training shards, or from a doc_id, to source and verdict.

    Returns:
        What the shards know of the token (empty for a doc_id), and the document.

    Raises:
        UserError: if there is no such place.
    """
    parts = place.split(":")
    if not all(part.isdecimal() for part in parts[1:] or parts) or len(parts) > 3:
        raise UserError(
            f"{place!r} is not a valid location", remedy="Write DOMAIN:DOCUMENT, DOMAIN:DOCUMENT:TOKEN, or a doc_id"
        )
    if len(parts) == 1:
        return {}, document(run, int(place))
    row, token = int(parts[1]), int(parts[2]) if len(parts) == 3 else 0
    try:
        found = _trace(run.store, parts[0], row, token)
    except IndexError as error:
        raise UserError(str(error), place=run.root) from error
    return found, document(run, int(found["doc_id"]))


def _trace(store: Store, domain: str, row: int, token: int) -> dict[str, Any]:
    """Trace a token in the shards; of remote ones, fetch what is needed: the index, and the companion of one shard."""
    if (local := store.local_path(SHARDS)) is not None:
        return ShardSet.open(local).trace(domain, "train", row, token)
    with store.scratch() as folder:
        for path in (f"{SHARDS}/{CATALOG_NAME}", *store.list(f"{SHARDS}/{INDEX_FOLDER}")):
            store.fetch(path, folder / path)
        shards = ShardSet(folder / SHARDS, ShardCatalog.load(folder / SHARDS))
        at = shards.locate(domain, "train", np.array([row], np.int64))
        entry = shards.entries(domain)[int(at.shard[0])]
        path = f"{SHARDS}/{entry.documents}"
        store.fetch(path, folder / path)
        if hash_file(folder / path)[0] != entry.documents_sha256:
            raise store.damaged(path)
        return shards.trace(domain, "train", row, token)


def _pairs(gone: pa.Table) -> list[tuple[str, str]]:
    groups = gone.group_by(["dropped_by", "reason"]).aggregate([]).to_pylist()
    return sorted((row["dropped_by"], row["reason"]) for row in groups)


def _first(
    table: pa.Table, readable: npt.NDArray[np.int64], limit: int, seed: int
) -> Iterator[tuple[tuple[bool, int], dict[str, Any]]]:
    """Yield the first rows by (unreadable, seeded hash of doc_id), with that rank."""
    ids = table.column("doc_id").to_numpy()
    hashes = splitmix64(ids.view(np.uint64) ^ np.uint64(seed))
    unreadable = ~is_in(ids, readable)
    for row in np.lexsort((hashes, unreadable))[:limit].tolist():
        yield (bool(unreadable[row]), int(hashes[row])), table.slice(row, 1).to_pylist()[0]


def _limited(picked: Iterable[tuple[tuple[str, str], Any, Shown]], limit: int) -> Iterator[tuple[Any, Shown]]:
    taken: dict[tuple[str, str], int] = {}
    for name, rank, shown in picked:
        taken[name] = taken.get(name, 0) + 1
        if taken[name] <= limit:
            yield rank, shown


def _shown(run: Run, row: Mapping[str, Any]) -> Shown:
    known = {name: row[name] for name in Shown.__dataclass_fields__ if name in row}
    # A score's column begins with its stage's name. Most stages that edit change nothing in most documents.
    of_edits = edit_columns(list(row))
    named = {k: v for k, v in row.items() if "." in k and isinstance(v, int | float)}
    scores = {k: v for k, v in named.items() if v or k not in of_edits}
    return Shown(**known, source=run.plan.path_of(row["source_index"]), scores=scores)


def _sampled_texts(run: Run) -> dict[int, str]:
    texts: dict[int, str] = {}
    for entry in run.files("judge", "samples").values():
        table = read_table(run.store, entry, ["doc_id", "text"])
        texts |= dict(zip(table.column("doc_id").to_pylist(), table.column("text").to_pylist(), strict=True))
    return texts


def _with_texts(run: Run, shown: Sequence[Shown]) -> list[Shown]:
    """Add the texts of documents that passed the judges, and of witnesses."""
    wanted = {one.doc_id for one in shown if one.text is None} | {
        one.witness for one in shown if one.witness is not None
    }
    texts = _texts(run, wanted)
    nothing = _Text(None, None, ())
    found = []
    for one in shown:
        own = texts.get(one.doc_id, nothing) if one.text is None else _Text(one.text, None, ())
        beside = texts.get(one.witness, nothing) if one.witness is not None else nothing
        one = replace(one, text=own.text, edits=own.edits)
        found.append(replace(one, witness_text=beside.text, witness_url=beside.url))
    return found


class _Text(NamedTuple):
    text: str | None
    url: str | None
    edits: Sequence[Mapping[str, Any]]


def _texts(run: Run, wanted: Iterable[int]) -> dict[int, _Text]:
    """Return the texts of those of ``wanted`` that the judges kept, reading each split concerned once."""
    by_split: dict[str, list[int]] = {}
    for doc_id in sorted(wanted):
        by_split.setdefault(_split_of(run, doc_id), []).append(doc_id)
    found: dict[int, _Text] = {}
    for split, files in view_files(run, list(by_split)).items():
        ids = np.array(by_split[split], np.int64)
        edits = edits_of(run.store, files, ids)
        for batch in documents(run.store, files, ids):
            for row in batch.select(["doc_id", "text", "url"]).to_pylist():
                found[row["doc_id"]] = _Text(row["text"], row["url"], edits.get(row["doc_id"], ()))
    return found


def _split_of(run: Run, doc_id: int) -> str:
    source, _ = split_doc_id(doc_id)
    if (split := run.plan.split_of(source)) is None:
        raise UserError(f"the run has no source {source}, so no record {doc_id}", place=run.root)
    return split
