"""A blacklist as a file that every process of a machine maps into memory: hashes of its entries, sorted.

A domain is hashed from its end, so one walk over a host gives the hashes of all domains above it; a URL from its
beginning. Reading URLs and looking them up is one kernel; what it cannot read plainly, it leaves to ``entries``.
"""

from __future__ import annotations

import functools
import json
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from stages.jit import argument, kernel, mix, subkernel
from stages.text.blocks import trailing_zeros
from stages.text.utf8 import utf8_buffers
from stages.url.entries import MAX_HOST_CHARS, MAX_URL_CHARS, ascii_host, is_address, path_of, without_mirror
from stages.url.host import host_of
from stages.url.lists import ListFile

UInt8s: TypeAlias = npt.NDArray[np.uint8]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int64s: TypeAlias = npt.NDArray[np.int64]
Side: TypeAlias = tuple[UInt64s, npt.NDArray[np.int16], npt.NDArray[np.uint32]]
"""Hashes of entries, sorted; the category of each; and where those begin that share their highest bits."""

MAGIC: Final = b"headrace blacklist 1\n"
_ALIGNMENT: Final = 64
_SEED: Final = np.uint64(0xCBF29CE484222325)
_PRIME: Final = np.uint64(0x100000001B3)
_BUCKET: Final = 4
"""Entries that share their highest bits, about: what is left of a search."""

ODD: Final = -2
"""Of a URL that the kernel leaves to ``entries``."""

# What a byte is: in a host, in a path, and of a listed domain.
_HOST, _PATH, _BOUNDARY, _DIGIT, _SPACE, _PLAIN = 1, 2, 4, 8, 16, 32


@dataclass(frozen=True)
class Table:
    """A blacklist.

    Attributes:
        categories: names of categories.
        domains, urls: their entries.
        longest_url: bytes of the longest listed URL.
    """

    categories: tuple[str, ...]
    domains: Side
    urls: Side
    longest_url: int

    def find(self, urls: pa.Array, hosts: pa.Array) -> tuple[Int64s, Int64s]:
        """Return the categories of the domains and of the URLs that block n documents: int64 of shape (n,), -1 for
        none.

        Args:
            urls: string array of n URLs.
            hosts: string array of n hosts, for those whose URL is null.
        """
        found = np.full((2, len(urls)), -1, np.int64)
        sides = (self.domains, self.urls)
        data, bounds = utf8_buffers(urls.fill_null("") if urls.null_count else urls)
        _find_plain(data, bounds, _byte_kinds(), sides, self.longest_url, found)
        only_host = pc.and_(urls.is_null(), hosts.is_valid()).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero((found[0] == ODD) | only_host)
        found[:, odd] = -1
        names, paths, alone, rows = [], [], [], []
        for row in odd.tolist():
            url, host = urls[row].as_py(), hosts[row].as_py()
            name = ascii_host(host or "" if url is None else host_of(url))
            if name:
                names.append(name.encode("utf-8", "replace"))
                paths.append(path_of(url[:MAX_URL_CHARS]).encode("utf-8", "replace") if url else b"")
                alone.append(is_address(name))
                rows.append(row)
        if rows:
            joined = [one for pair in zip(names, paths, strict=True) for one in pair]
            flat, ends = _joined(joined)
            part = np.full((2, len(rows)), -1, np.int64)
            _find_odd(flat, ends, argument(np.array(alone, np.bool_)), sides, self.longest_url, part)
            found[:, rows] = part
        return found[0], found[1]


def _joined(pieces: Sequence[bytes]) -> tuple[UInt8s, Int64s]:
    ends = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=ends[1:])
    return argument(np.frombuffer(b"".join(pieces), np.uint8)), argument(ends)


@functools.cache
def _byte_kinds() -> UInt8s:
    kinds = np.zeros(256, np.uint8)
    letters, digits = b"abcdefghijklmnopqrstuvwxyz", b"0123456789"
    kinds[list(letters + letters.upper() + digits + b"-_.")] |= _HOST
    kinds[[byte for byte in range(0x21, 0x7F) if byte not in b"%\\"]] |= _PATH
    kinds[list(b"/?&;")] |= _BOUNDARY
    kinds[list(digits)] |= _DIGIT
    kinds[list(b" \t\n\r\x0b\x0c")] |= _SPACE
    kinds[list(letters + digits + b"-_")] |= _PLAIN
    return argument(kinds)


@subkernel
def _category(side: Side, state: np.uint64) -> np.int64:
    """Return the category of the entry with a hash, -1 where there is none."""
    keys, categories, starts = side
    if not len(keys):
        return np.int64(-1)
    key = mix(state)
    # Shifted in two steps, because a shift by all 64 bits is none.
    bits = trailing_zeros(np.uint64(len(starts) - 1))
    bucket = np.int64(key >> np.uint64(1) >> np.uint64(63 - bits))
    for at in range(starts[bucket], starts[bucket + 1]):
        if keys[at] == key:
            return np.int64(categories[at])
    return np.int64(-1)


@subkernel
def _find(
    data: UInt8s, start: int, middle: int, end: int, alone: bool, sides: tuple[Side, Side], longest: int, found: Int64s
) -> None:
    """Look up the host ``data[start:middle]`` and the path up to ``end``: the most specific entry counts."""
    domains, urls = sides
    state = _SEED
    for at in range(middle - 1, start - 1, -1):
        byte = data[np.uint64(at)]
        if byte == 0x2E and not alone:
            category = _category(domains, state)
            if category >= 0:
                found[0] = category
        state = (state ^ np.uint64(byte)) * _PRIME
    category = _category(domains, state)
    if category >= 0:
        found[0] = category
    if not len(urls[0]):
        return
    state = _SEED
    first = start + _mirror(data, start, middle)
    last = min(end, first + longest)
    for at in range(first, end):
        if at > last:
            return
        byte = data[np.uint64(at)]
        if at >= middle and (byte == 0x2F or byte == 0x3F or byte == 0x26 or byte == 0x3B):
            category = _category(urls, state)
            if category >= 0:
                found[1] = category
        state = (state ^ np.uint64(byte)) * _PRIME
    category = _category(urls, state)
    if category >= 0:
        found[1] = category


@subkernel
def _mirror(data: UInt8s, start: int, end: int) -> int:
    """Return the bytes of a first label such as ``www2`` with its dot, of a host that has two more labels."""
    if end - start < 4:
        return 0
    first, second, third = data[start], data[start + 1], data[start + 2]
    is_www = first == 0x77 and second == 0x77 and third == 0x77
    is_web = first == 0x77 and second == 0x65 and third == 0x62
    is_ftp = first == 0x66 and second == 0x74 and third == 0x70
    if not (is_www or is_web or is_ftp):
        return 0
    at = start + 3
    while at < end and 0x30 <= data[at] <= 0x39:
        at += 1
    if at >= end or data[at] != 0x2E:
        return 0
    label = at + 1
    after = label
    while after < end and data[after] != 0x2E:
        after += 1
    return label - start if label < after < end else 0


@kernel
def _find_odd(
    data: UInt8s, ends: Int64s, alone: npt.NDArray[np.bool_], sides: tuple[Side, Side], longest: int, found: Int64s
) -> None:
    """Fill ``found`` for hosts and paths in turns, as ``entries`` gives them."""
    for row in range(len(alone)):
        start, middle, end = ends[2 * row], ends[2 * row + 1], ends[2 * row + 2]
        _find(data, start, middle, end, alone[row], sides, longest, found[:, row])


@kernel
def _find_plain(
    data: UInt8s, bounds: Int64s, kinds: UInt8s, sides: tuple[Side, Side], longest: int, found: Int64s
) -> None:
    """Fill ``found`` for URLs of the plainest form, in ASCII without escapes; others get ``ODD`` in ``found[0]``."""
    text = np.empty(MAX_URL_CHARS, np.uint8)
    for row in range(len(bounds) - 1):
        at, end = bounds[row], bounds[row + 1]
        if at == end:
            continue
        host_size, size = _normal(data, at, min(end, at + MAX_URL_CHARS), kinds, text)
        if host_size == ODD:
            found[0, row] = ODD
        elif host_size:
            _find(text, 0, host_size, size, False, sides, longest, found[:, row])


@subkernel
def _normal(data: UInt8s, at: int, end: int, kinds: UInt8s, text: UInt8s) -> tuple[int, int]:
    """Write host and path of a URL in lower case; return the sizes of the host and of both, or (``ODD``, 0)."""
    start = at
    while at < end and data[at] != 0x5F and (kinds[data[at]] & _PLAIN or 0x41 <= data[at] <= 0x5A):
        at += 1
    if at == start or end - at < 4 or data[at] != 0x3A or data[at + 1] != 0x2F or data[at + 2] != 0x2F:
        return ODD, 0
    first = np.int64(data[start]) | 0x20
    if not 0x61 <= first <= 0x7A:
        return ODD, 0
    at += 3
    size = label = 0
    only_digits = True
    while at < end and kinds[data[at]] & _HOST:
        byte = data[at]
        if byte == 0x2E:
            label, only_digits = size + 1, True
        elif not kinds[byte] & _DIGIT:
            only_digits = False
        text[size] = byte | 0x20 if 0x41 <= byte <= 0x5A else byte
        size += 1
        at += 1
        if size > MAX_HOST_CHARS:
            return ODD, 0
    # No host, one that begins or ends with a dot, and what may be an address.
    if not size or text[0] == 0x2E or label == size or only_digits:
        return ODD, 0
    host = size
    if at < end and data[at] == 0x3A:
        at += 1
        while at < end and kinds[data[at]] & _DIGIT:
            at += 1
    if at < end and data[at] != 0x2F and data[at] != 0x3F and data[at] != 0x23:
        return ODD, 0
    while at < end and data[at] != 0x23:
        byte = data[at]
        if not kinds[byte] & _PATH:
            return ODD, 0
        text[size] = byte | 0x20 if 0x41 <= byte <= 0x5A else byte
        size += 1
        at += 1
    return host, size


@kernel
def _read_domains(data: UInt8s, kinds: UInt8s, keys: UInt64s, odd: Int64s) -> tuple[int, int]:
    """Read the lines of a file: the hashes of plain domains to ``keys``, begin and end of other entries to ``odd``.

    Returns:
        how many there are of each.
    """
    count = others = at = 0
    total = len(data)
    while at < total:
        start = at
        while at < total and data[at] != 0x0A:
            at += 1
        end, at = at, at + 1
        while start < end and kinds[data[start]] & _SPACE:
            start += 1
        while start < end and kinds[data[end - 1]] & _SPACE:
            end -= 1
        if start == end or data[start] == 0x23:
            continue
        state, dots, is_plain, after = _SEED, 0, True, True
        for place in range(end - 1, start - 1, -1):
            byte = data[place]
            is_dot = byte == 0x2E
            is_plain &= (is_dot and not after) or kinds[byte] & _PLAIN != 0
            after = is_dot
            dots += is_dot
            state = (state ^ np.uint64(byte)) * _PRIME
        if is_plain and dots and not after:
            keys[count] = mix(state)
            count += 1
        else:
            odd[others], odd[others + 1] = start, end
            others += 2
    return count, others


@kernel
def _hash_all(data: UInt8s, ends: Int64s, from_end: bool, keys: UInt64s) -> None:
    for row in range(len(keys)):
        state = _SEED
        for at in range(ends[row], ends[row + 1]):
            place = ends[row] + ends[row + 1] - 1 - at if from_end else at
            state = (state ^ np.uint64(data[place])) * _PRIME
        keys[row] = mix(state)


def _hashes(names: Sequence[str], *, from_end: bool) -> UInt64s:
    data, ends = _joined([name.encode("utf-8", "replace") for name in names])
    keys = np.empty(len(names), np.uint64)
    _hash_all(data, ends, from_end, keys)
    return keys


def read_lists(files: Sequence[ListFile]) -> Table:
    """Return the table of the entries in files."""
    categories = tuple(dict.fromkeys(file.category for file in files))
    domains: list[tuple[UInt64s, int]] = []
    urls: list[tuple[UInt64s, int]] = []
    longest = 0
    for file in files:
        category = categories.index(file.category)
        plain, names, prefixes = _read(file)
        domains += [(plain, category), (_hashes(names, from_end=True), category)]
        urls.append((_hashes(prefixes, from_end=False), category))
        longest = max([longest, *(len(prefix.encode("utf-8", "replace")) for prefix in prefixes)])
    return Table(categories, _sorted(domains), _sorted(urls), longest)


def _read(file: ListFile) -> tuple[UInt64s, list[str], list[str]]:
    """Return the hashes of a file's plain domains, its other domains and its URLs."""
    raw = Path(file.path).read_bytes()
    data = argument(np.frombuffer(raw, np.uint8))
    lines = raw.count(b"\n") + 1
    keys, odd = np.empty(lines, np.uint64), np.empty(2 * lines, np.int64)
    kinds = _byte_kinds().copy()
    if file.kind == "urls":
        # Of such a file no entry is a domain.
        kinds &= ~np.uint8(_PLAIN)
    count, others = _read_domains(data, argument(kinds), keys, odd)
    names, prefixes = [], []
    for start, end in odd[:others].reshape(-1, 2).tolist():
        entry = raw[start:end].decode("utf-8", "replace").lower()
        url = entry if "://" in entry else f"http://{entry}"
        host, path = ascii_host(host_of(url).removeprefix("*.")), path_of(url).rstrip("/")
        if host and file.kind != "urls" and not path:
            names.append(host)
        elif host:
            prefixes.append(without_mirror(host) + path)
    return keys[:count].copy(), names, prefixes


def _sorted(parts: Sequence[tuple[UInt64s, int]]) -> Side:
    keys = np.concatenate([np.empty(0, np.uint64), *(keys for keys, _ in parts)])
    of = [np.empty(0, np.int16), *(np.full(len(keys), category, np.int16) for keys, category in parts)]
    # An entry in two categories counts for the first, in the order of the lists.
    unique, first = np.unique(keys, return_index=True)
    bits = max(0, (len(unique) // _BUCKET).bit_length())
    ends = np.arange(1, 1 << bits, dtype=np.uint64) << np.uint64(64 - bits) if bits else np.empty(0, np.uint64)
    starts = np.concatenate(([0], np.searchsorted(unique, ends), [len(unique)]))
    return argument(unique), argument(np.concatenate(of)[first]), argument(starts.astype(np.uint32))


def write_table(table: Table, path: Path) -> None:
    """Write a table to a file."""
    arrays: list[npt.NDArray[Any]] = [*table.domains, *table.urls]
    pieces = [array.tobytes() for array in arrays]
    body = b"".join(piece + bytes(-len(piece) % _ALIGNMENT) for piece in pieces)
    head: dict[str, Any] = {"categories": table.categories, "longest_url": table.longest_url}
    head |= {"rows": [len(array) for array in arrays], "xxh3_128": xxhash.xxh3_128_hexdigest(body)}
    said = MAGIC + json.dumps(head).encode() + b"\n"
    with path.open("wb") as out:
        out.write(said + bytes(-len(said) % _ALIGNMENT))
        out.write(body)


def open_table(path: Path) -> Table:
    """Map a file of ``write_table`` into memory, and compare it with the hash that it holds.

    Raises:
        ValueError: if it is another, or not whole.
        OSError: if it cannot be opened.
    """
    with path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    end = data.find(b"\n", len(MAGIC))
    if data[: len(MAGIC)] != MAGIC or end < 0:
        raise ValueError("not a blacklist")
    head = json.loads(data[len(MAGIC) : end])
    at = end + 1 + -(end + 1) % _ALIGNMENT
    if xxhash.xxh3_128_hexdigest(memoryview(data)[at:]) != head["xxh3_128"]:
        raise ValueError("damaged")
    arrays: list[Any] = []
    for rows, kind in zip(head["rows"], (np.uint64, np.int16, np.uint32) * 2, strict=True):
        arrays.append(argument(np.frombuffer(data, kind, rows, at)))
        at += arrays[-1].nbytes + -arrays[-1].nbytes % _ALIGNMENT
    sides: tuple[Side, Side] = (arrays[0], arrays[1], arrays[2]), (arrays[3], arrays[4], arrays[5])
    return Table(tuple(head["categories"]), *sides, head["longest_url"])
