"""The files of ``costs/``: what each unit's stages cost, one small file per unit, folded into one per pass.

They tell people where the time went and nothing else reads them. They hold clocks, so no digest, manifest or marker
covers them, no run waits for them, and one that is damaged is left out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from shards.errors import IncompleteError
from shards.store import UNFINISHED, Store

FOLDER: Final = "costs"
_FOLDED: Final = "folded.arrow"

# A remote store takes tens of milliseconds for a small file: so many are under way at once.
_CALLS_AT_ONCE: Final = 16
_RECORDS_AT_ONCE: Final = 4_096
_DIGEST: Final = b"headrace.digest"
_COMPRESSED: Final = pa.ipc.IpcWriteOptions(compression="zstd")

_log = logging.getLogger(__name__)


@dataclass
class Cost:
    """What a stage has spent.

    Attributes:
        cpu_ns: CPU time, without that of the stages before and after it.
        thread_ns: what of it is its own thread's alone, because other stages were at work in the process: what its
            libraries' threads took meanwhile is in nobody's.
        wall_ns: time on the clock of the wall, in the same windows: more than CPU time where it waited.
        calls: elements that it was given.
        rows_in: rows that it worked on, of the batches that it was given.
        rows_out: rows of the batches that it returned.
        bytes: their bytes; of the batches that it returned where it makes them from a name.
    """

    cpu_ns: int = 0
    thread_ns: int = 0
    wall_ns: int = 0
    calls: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bytes: int = 0

    def add(self, other: Cost) -> None:
        """Add another's numbers to these."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTS: Final = tuple(each.name for each in fields(Cost))


@dataclass
class UnitCosts:
    """What one attempt at a unit cost: the one that was committed.

    Attributes:
        unit: the unit's name; of work before a shuffle, which is for all units, any name of its own.
        digest: the digest of the pass.
        is_shared: whether the work was for all units.
        peak_bytes: most memory that the process held while the unit was in it.
        is_peak_of_unit: whether it was measured from the unit's beginning, or from that of the process.
        stages: costs by stage, in chain order.
    """

    unit: str
    digest: str
    is_shared: bool = False
    peak_bytes: int = 0
    is_peak_of_unit: bool = False
    stages: dict[str, Cost] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain values."""
        stages = [{"stage": name, **asdict(cost)} for name, cost in self.stages.items()]
        return {**{name: value for name, value in vars(self).items() if name != "stages"}, "stages": stages}


SCHEMA: Final = pa.schema(
    [
        ("unit", pa.string()),
        ("is_shared", pa.bool_()),
        ("position", pa.int32()),
        ("stage", pa.string()),
        *((name, pa.int64()) for name in COUNTS),
        ("peak_bytes", pa.int64()),
        ("is_peak_of_unit", pa.bool_()),
    ]
)
"""One row per unit and stage; ``position`` is the stage's in the chain."""


@contextlib.contextmanager
def optional(what: str) -> Iterator[None]:
    """Let the body fail without consequences but a warning: no work is lost for want of a note on what it cost."""
    try:
        yield
    except Exception as error:  # whatever a store's handler raises
        _log.warning("%s: %s: %s", what, type(error).__name__, error)


def write(store: Store, pass_name: str, record: UnitCosts) -> None:
    """Write a unit's record, in place of an earlier attempt's. A failure is logged, never raised."""
    path = f"{_units_of(pass_name)}/{record.unit}{'.shared' if record.is_shared else ''}.json"
    with optional(f"the costs of unit {record.unit} of pass {pass_name} are not kept"):
        store.write_json(path, record.to_json())


def _units_of(pass_name: str) -> str:
    return f"{UNFINISHED}/{pass_name}/costs"


def fold(store: Store, pass_name: str, digest: str, units: Iterable[str]) -> None:
    """Fold the unit files of a pass into ``costs/{pass}/folded.arrow``.

    For the one driver of a run: before a pass, so that what another recipe left there is gone, and after it. A failure
    is logged, never raised.

    Args:
        store: the run's.
        pass_name: the pass.
        digest: its digest: records of another are left out, their output is gone.
        units: the names of all its units: one that it does not have any more is left out.
    """
    with optional(f"the costs of pass {pass_name} are not folded"):
        found, before = _folded(store, pass_name, store.list(f"{FOLDER}/{pass_name}"))
        paths = store.list(_units_of(pass_name))
        table = _merged(before if found == digest else SCHEMA.empty_table(), _read_records(store, paths, digest))
        named = pc.is_in(table.column("unit"), value_set=pa.array(list(units), pa.string()))
        table = table.filter(pc.or_(table.column("is_shared"), named))
        if paths or found not in (None, digest) or table.num_rows != before.num_rows:
            _write_folded(store, pass_name, digest, table)
        # After it: a driver that is killed between leaves records twice, and the next fold takes either.
        if paths:
            store.delete_folder(_units_of(pass_name))


def read(store: Store) -> dict[str, pa.Table]:
    """Return every pass's costs, a table of ``SCHEMA`` by name, units that no fold has taken yet included."""
    listed: dict[str, list[str]] = {}
    for path in [*store.list(FOLDER), *store.list(UNFINISHED)]:
        folder, name, *_ = path.split("/")
        if folder == FOLDER or path.startswith(f"{_units_of(name)}/"):
            listed.setdefault(name, []).append(path)
    tables: dict[str, pa.Table] = {}
    for name, paths in sorted(listed.items()):
        records = _read_records(store, [path for path in paths if path.endswith(".json")])
        table = _merged(_folded(store, name, paths)[1], records)
        if table.num_rows:
            tables[name] = table
    return tables


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_CALLS_AT_ONCE, thread_name_prefix="headrace-costs")


def _read_records(store: Store, paths: Sequence[str], digest: str | None = None) -> pa.Table:
    """Return the records of unit files, those of ``digest`` alone if it is given."""

    def table_at(path: str) -> pa.Table:
        # Damaged, of another version, or folded meanwhile by the driver.
        with contextlib.suppress(IncompleteError, OSError, LookupError, TypeError, ValueError, ArithmeticError):
            value = store.read_json(path)
            if digest is None or value["digest"] == digest:
                return pa.Table.from_pylist(_rows(value), schema=SCHEMA)
        return SCHEMA.empty_table()

    tables = [SCHEMA.empty_table()]
    with _pool() as pool:
        for start in range(0, len(paths), _RECORDS_AT_ONCE):
            found = pool.map(table_at, paths[start : start + _RECORDS_AT_ONCE])
            tables.append(pa.concat_tables(found).combine_chunks())
    return pa.concat_tables(tables)


def _rows(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    of_unit = {name: value[name] for name in ("unit", "is_shared", "peak_bytes", "is_peak_of_unit")}
    rows = [{**of_unit, **cost, "position": position} for position, cost in enumerate(value["stages"])]
    if any(row.get(name) is None for row in rows for name in SCHEMA.names):
        raise ValueError("a record lacks a number")
    return rows


def _merged(before: pa.Table, records: pa.Table) -> pa.Table:
    """Return both, the later record of a unit in place of the earlier."""
    for is_shared in (False, True):
        again = records.filter(pc.equal(records.column("is_shared"), is_shared)).column("unit").combine_chunks()
        same = pc.and_(
            pc.equal(before.column("is_shared"), is_shared), pc.is_in(before.column("unit"), value_set=again)
        )
        before = before.filter(pc.invert(same))
    return pa.concat_tables([before, records])


def _folded(store: Store, pass_name: str, listed: Sequence[str]) -> tuple[str | None, pa.Table]:
    """Return (digest, table) of a pass's folded file; (None, an empty one) where there is none that can be read."""
    path = f"{FOLDER}/{pass_name}/{_FOLDED}"
    if path in listed:
        with contextlib.suppress(pa.ArrowInvalid, OSError, IncompleteError):
            with pa.ipc.open_file(pa.py_buffer(store.read_bytes(path))) as reader:
                table = reader.read_all()
            table.validate(full=True)
            if table.schema.equals(SCHEMA):
                digest = (table.schema.metadata or {}).get(_DIGEST, b"").decode(errors="replace")
                return digest, table.replace_schema_metadata(None)
    return None, SCHEMA.empty_table()


def _write_folded(store: Store, pass_name: str, digest: str, table: pa.Table) -> None:
    sink = pa.BufferOutputStream()
    table = table.replace_schema_metadata({_DIGEST: digest})
    with pa.ipc.new_file(sink, table.schema, options=_COMPRESSED) as writer:
        writer.write_table(table)
    store.write_bytes(f"{FOLDER}/{pass_name}/{_FOLDED}", sink.getvalue().to_pybytes())
