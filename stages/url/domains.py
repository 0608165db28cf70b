"""Mixture domains by host: they partition the documents, because the first rule that matches wins."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc


class HostRules:
    """Rules (name, host patterns) in order: the first that matches a host names its domain.

    Patterns are shell patterns over the host, such as ``*.wikipedia.org``. Whole hosts and ``*.suffix`` cost a look
    into a table, whatever their number; other patterns are tried one rule after another.
    """

    def __init__(self, rules: Sequence[tuple[str, Sequence[str]]]) -> None:
        self._names = [name for name, _ in rules]
        self._hosts: dict[str, int] = {}
        self._suffixes: dict[str, int] = {}
        self._others: list[tuple[int, re.Pattern[str]]] = []
        for rule, (_, patterns) in enumerate(rules):
            others = []
            for pattern in (pattern.lower() for pattern in patterns):
                if not _is_wild(pattern):
                    self._hosts.setdefault(pattern, rule)
                elif pattern.startswith("*.") and not _is_wild(pattern[1:]):
                    self._suffixes.setdefault(pattern[1:], rule)
                else:
                    others.append(fnmatch.translate(pattern))
            if others:
                self._others.append((rule, re.compile("|".join(others))))
        self._longest = max(map(len, self._suffixes), default=0)

    def domains(self, hosts: pa.Array) -> pa.Array:
        """Return the domain, string, of every host (string, lower case), null where no rule matches."""
        encoded = hosts.dictionary_encode()
        rules = [self._first(host) if host else None for host in encoded.dictionary.to_pylist()]
        names = pa.array([None if rule is None else self._names[rule] for rule in rules], pa.string())
        return names.take(encoded.indices)

    def _first(self, host: str) -> int | None:
        found = min(self._looked_up(host), default=len(self._names))
        for rule, pattern in self._others:
            if rule >= found:
                break
            if pattern.match(host):
                return rule
        return found if found < len(self._names) else None

    def _looked_up(self, host: str) -> Iterator[int]:
        if host in self._hosts:
            yield self._hosts[host]
        # A hostile host may have thousands of dots; no suffix is longer than the longest.
        tail = host[-self._longest :] if self._longest else ""
        at = tail.find(".")
        while at >= 0:
            if tail[at:] in self._suffixes:
                yield self._suffixes[tail[at:]]
            at = tail.find(".", at + 1)


def _is_wild(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def assign(batch: pa.RecordBatch, rules: Sequence[tuple[str, Sequence[str]]]) -> pa.RecordBatch:
    """Return ``batch`` with ``domain`` set by ``HostRules``; rows that match none keep their source's domain."""
    domain = pc.coalesce(HostRules(rules).domains(batch.column("host")), batch.column("domain"))
    return batch.set_column(batch.schema.get_field_index("domain"), batch.schema.field("domain"), domain)
