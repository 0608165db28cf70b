"""Mixture domains by host: they partition the documents, because the first rule that matches wins."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

import pyarrow as pa


def assign(batch: pa.RecordBatch, rules: Sequence[tuple[str, Sequence[str]]]) -> pa.RecordBatch:
    """Return ``batch`` with ``domain`` set by the first of ``rules`` (name, host patterns) that matches a row's host.

    Patterns are shell patterns over the host, such as ``*.wikipedia.org``. Rows that match none keep their source's
    domain.
    """
    compiled = [
        (name, re.compile("|".join(fnmatch.translate(host.lower()) for host in hosts))) for name, hosts in rules
    ]
    hosts = batch.column("host").to_pylist()
    found = {host: next((name for name, rule in compiled if rule.match(host)), None) for host in set(hosts) if host}
    given = batch.column("domain").to_pylist()
    domain = pa.array([found.get(host) or own for host, own in zip(hosts, given, strict=True)], pa.string())
    return batch.set_column(batch.schema.get_field_index("domain"), batch.schema.field("domain"), domain)
