"""URL blacklists as compact tables of hashes, matched as squidGuard does: UT1's are written for it."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, NamedTuple
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic
import xxhash

from stages.base import stage
from stages.checks import ANY, Check
from stages.models.cache import load_once
from stages.scores import Category, Values
from stages.url.host import host_of
from stages.url.lists import ListFile, digest_files, list_files

MAX_HOST_CHARS: Final = 253
"""The longest name in the DNS (RFC 1035); of a longer host, only the end can be on a list."""

MAX_URL_CHARS: Final = 16_384
"""Characters of a URL that are compared; no listed URL is that long."""

_PLAIN_DOMAIN: Final = re.compile(rb"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+")
_IPV4: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_AFTER_HOST: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]{2,}[^/\\?#]*([^#]*)")
_MIRROR_LABEL: Final = re.compile(r"(?:www|web|ftp)[0-9]*\.(?=[^.]+\.)")
_PERCENT: Final = re.compile(r"%([0-9a-f]{2})")
_BOUNDARY: Final = re.compile(r"[/?&;]")
_UNRESERVED: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._~")


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

    Entries are kept as 64-bit hashes, 10 bytes each. Matches are not verified: with n entries, a document with k names
    to look up (its labels and path segments, about 5) is wrongly blocked with probability k * n / 2^64. For 4.5 million
    entries that is one in 10^12 documents.
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
        table = self._table()
        keys = (array("Q"), array("Q"))
        rows = (array("q"), array("q"))
        hosts = batch.column("host").to_pylist()
        for row, (url, known_host) in enumerate(zip(batch.column("url").to_pylist(), hosts, strict=True)):
            host = ascii_host(known_host or "" if url is None else host_of(url))
            if not host:
                continue
            names = host_names(host)
            keys[0].extend(names)
            rows[0].extend([row] * len(names))
            if len(table.urls.keys):
                prefixes = url_prefixes(host, "" if url is None else path_of(url[:MAX_URL_CHARS]), table.longest_url)
                keys[1].extend(prefixes)
                rows[1].extend([row] * len(prefixes))
        scores: dict[str, Values] = {}
        for kind, (score, entries) in enumerate((("domain_category", table.domains), ("url_category", table.urls))):
            hit = entries.category_of(np.frombuffer(keys[kind], np.uint64))
            # Names come longest first; written backwards, the most specific entry is the one that remains.
            found = np.flatnonzero(hit >= 0)[::-1]
            category = np.full(batch.num_rows, -1, np.int64)
            category[np.frombuffer(rows[kind], np.int64)[found]] = hit[found]
            scores[score] = pa.array(table.categories, pa.string()).take(pa.array(category, mask=category < 0))
        return scores

    def _table(self) -> _Table:
        return load_once(_load, json.dumps([self.lists, self.categories]), self._bytes)

    def _bytes(self) -> int:
        return sum(Path(path).stat().st_size for path in self.files())


def ascii_host(host: str) -> str:
    """Return ``host`` (lower case) as the DNS knows it: no leading or trailing dots, labels in ASCII where possible."""
    host = host.strip(".")
    if not host.isascii():
        # Label by label, because one that IDNA rejects must not keep the others from being found.
        labels = re.split("[.\u3002\uff0e\uff61]", host)
        host = ".".join(_ascii_label(label) for label in labels)
    if len(host) > MAX_HOST_CHARS:
        host = host[-MAX_HOST_CHARS:].partition(".")[2]
    return host


def _ascii_label(label: str) -> str:
    if label.isascii() or len(label) > 63:
        return label
    try:
        return label.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return label


def host_names(host: str) -> list[int]:
    """Return the hashes of the names by which a domain list may know ``host``: its own, then its parents'."""
    names = [_hash(host)]
    if ":" in host or _IPV4.fullmatch(host):
        return names
    dot = host.find(".")
    while dot >= 0:
        names.append(_hash(host[dot + 1 :]))
        dot = host.find(".", dot + 1)
    return names


def path_of(url: str) -> str:
    """Return path and query of ``url``, normalised: lower case, only reserved characters escaped, slashes forward."""
    match = _AFTER_HOST.match(url)
    return _normal_path(match[1]) if match else ""


def _normal_path(path: str) -> str:
    path = path.strip().lower().replace("\\", "/")
    if "%" in path:
        path = _PERCENT.sub(_unescaped, path)
    if not path.isascii():
        path = quote(path, safe="".join(map(chr, range(0x21, 0x7F))), errors="replace").lower()
    return path


def _unescaped(escape: re.Match[str]) -> str:
    char = chr(int(escape[1], 16))
    return char.lower() if char.lower() in _UNRESERVED else escape[0]


def url_prefixes(host: str, path: str, longest: int) -> list[int]:
    """Return the hashes of all entries of up to ``longest`` characters that would block this URL, longest first."""
    host = _without_mirror(host)
    room = max(longest - len(host), 0)
    ends = [match.start() for match in _BOUNDARY.finditer(path, 0, room + 1)]
    if len(path) <= room:
        ends.append(len(path))
    return [_hash(host + path[:end]) for end in reversed(ends)]


def _without_mirror(host: str) -> str:
    match = _MIRROR_LABEL.match(host)
    return host[match.end() :] if match else host


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "replace"))


class _Entries(NamedTuple):
    """Hashes of entries, uint64 sorted, and the category of each, int16."""

    keys: npt.NDArray[np.uint64]
    category: npt.NDArray[np.int16]

    def category_of(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """Return the category of each key, -1 if it is not an entry; int64 of the same shape."""
        if not len(self.keys) or not len(keys):
            return np.full(len(keys), -1, np.int64)
        at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[at] == keys, self.category[at], -1).astype(np.int64)


class _Table(NamedTuple):
    categories: list[str]
    domains: _Entries
    urls: _Entries
    longest_url: int


def _load(key: str) -> _Table:
    lists, chosen = json.loads(key)
    files = list_files(tuple(lists), tuple(chosen))
    categories = list(dict.fromkeys(file.category for file in files))
    keys = (array("Q"), array("Q"))
    category = (array("h"), array("h"))
    longest = 0
    for file in files:
        sizes = len(keys[0]), len(keys[1])
        longest = max(longest, _read(file, *keys))
        for kind in (0, 1):
            category[kind].extend([categories.index(file.category)] * (len(keys[kind]) - sizes[kind]))
    return _Table(categories, _sorted(keys[0], category[0]), _sorted(keys[1], category[1]), longest)


def _sorted(keys: array[int], category: array[int]) -> _Entries:
    # An entry in two categories counts for the first, in the order of the lists.
    unique, first = np.unique(np.frombuffer(keys, np.uint64), return_index=True)
    return _Entries(unique, np.frombuffer(category, np.int16)[first])


def _read(file: ListFile, domains: array[int], urls: array[int]) -> int:
    """Add the hashes of a file's entries; return the length of its longest URL, in characters."""
    longest = 0
    for line in _lines(file.path):
        if file.kind != "urls" and _PLAIN_DOMAIN.fullmatch(line):
            domains.append(xxhash.xxh3_64_intdigest(line))
            continue
        entry = line.decode("utf-8", "replace").lower()
        url = entry if "://" in entry else f"http://{entry}"
        host, path = ascii_host(host_of(url).removeprefix("*.")), path_of(url).rstrip("/")
        if not host:
            continue
        if file.kind != "urls" and not path:
            domains.append(_hash(host))
        else:
            prefix = _without_mirror(host) + path
            urls.append(_hash(prefix))
            longest = max(longest, len(prefix))
    return longest


def _lines(path: str) -> Iterator[bytes]:
    with open(path, "rb") as lines:
        for line in lines:
            entry = line.strip()
            if entry and not entry.startswith(b"#"):
                yield entry
