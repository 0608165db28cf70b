"""URL blacklists as compact tables of hashes, matched as squidGuard does: UT1's are written for it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final

import pyarrow as pa
import pydantic

from stages.base import stage
from stages.checks import ANY, Check
from stages.models.cache import load_once
from stages.models.derived import derived, digest_of
from stages.scores import Category, Values
from stages.url.blacklist_table import Table, open_table, read_lists, write_table
from stages.url.lists import digest_files, list_files

KEPT_BYTES: Final = 4 << 20
"""Lists shorter than this are read by every process: that takes as long as loading a file."""


@stage
class UrlBlacklist:
    """Drops documents whose host or URL is on a list.

    ``lists`` are folders in UT1 layout, ``<category>/{domains,urls,usage}``, which may be inside a folder
    ``blacklists``, or plain files with one domain or URL per line. ``categories`` are those to block; empty for every
    category that the folder declares black (see ``stages.url.lists``). ``detail`` of a drop is its category, or the
    name of the plain file.

    A domain blocks its host and every subdomain, an IP address only itself. A URL blocks itself and everything below
    it: what follows it in a longer URL must begin with one of ``/ ? & ;``. Scheme, user, port, fragment, case, a
    trailing dot or slash, and in URLs a first label such as ``www2`` are ignored; international names are compared in
    punycode.

    Entries are kept as 64-bit hashes, 12 bytes each, in a file that is made once on a machine and mapped into memory by
    its processes. Matches are not verified: with n entries, a document with k names to look up (its labels and path
    segments, about 5) is wrongly blocked with probability k * n / 2^64. For 4.5 million entries that is one in 10^12
    documents.
    """

    name: ClassVar[str] = "url_blacklist_v1"
    needs = ("url", "host")
    scores = (
        Category("domain_category", "category of the list that has the host, or a domain above it"),
        Category("url_category", "category of the list that has the URL, or what is above it"),
    )
    checks = (
        Check("blacklisted_domain", "domain_category", forbidden=ANY),
        Check("blacklisted_url", "url_category", forbidden=ANY),
    )
    path_parameters: ClassVar[tuple[str, ...]] = ("lists",)

    lists: Annotated[tuple[str, ...], pydantic.Field(min_length=1)]
    categories: tuple[str, ...] = ()

    def files(self) -> tuple[str, ...]:
        """Return every file that is read; a missing list or an unknown category is a ``UserError``."""
        return digest_files(self.lists, self.categories)

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Look up the URL, and where that is null the host."""
        table = load_once(_load, json.dumps([self.lists, self.categories]), self._bytes)
        found = table.find(batch.column("url"), batch.column("host"))
        names = pa.array(table.categories, pa.string())
        return {
            score.name: names.take(pa.array(category, mask=category < 0))
            for score, category in zip(self.scores, found, strict=True)
        }

    def _bytes(self) -> int:
        return sum(Path(path).stat().st_size for path in self.files())


def _load(key: str) -> Table:
    lists, chosen = json.loads(key)
    files = list_files(tuple(lists), tuple(chosen))
    if sum(Path(file.path).stat().st_size for file in files) < KEPT_BYTES:
        return read_lists(files)
    order = (f"{file.category}\0{file.kind}" for file in files)
    name = f"{digest_of([file.path for file in files], *order)}.blacklist_1"
    return derived(name, lambda path: write_table(read_lists(files), path), open_table)
