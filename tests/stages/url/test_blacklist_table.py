"""The mapped table against sets of strings, and what becomes of a file that is damaged."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.url.blacklist_table import MAGIC, Table, open_table, read_lists, write_table
from stages.url.entries import ascii_host, is_address, path_of, without_mirror
from stages.url.host import host_of
from stages.url.lists import ListFile

ENTRIES = (
    "bad.example", "very.bad.example", "example.org", "10.0.0.1", "localhost", "bücher.example", "x_y.example",
    "page.example/a", "page.example/a/b?c", "www.page.example/only", "page.example/d;e", "quoted.example/a%20b",
)  # fmt: skip
HOSTS = st.sampled_from(
    ["bad.example", "A.very.BAD.example", "www.bad.example", "www2.page.example", "page.example", "ftp.x.y", "web.page",
     "example.org.", "10.0.0.1", "1.10.0.0.1", "localhost", "bücher.example", "x_y.example", "a..bad.example", "",
     "quoted.example", "[::1]", "user@bad.example", "b" * 250 + ".bad.example", "www.bad", "ftp9.page.example"]
)  # fmt: skip
PATHS = st.lists(
    st.sampled_from(["/", "a", "/a", "/b", "?c", ";e", "/d", "&", "#f", "%20", "%41", "\\", " "])
    | st.sampled_from(["é", "/only", "A/B", "x" * 99]),
    max_size=5,
).map("".join)
URLS = st.builds(
    lambda scheme, host, port, path: f"{scheme}{host}{port}{path}",
    st.sampled_from(["http://", "HTTPS://", " http://", "//", "http:///", "", "h_p://", "1x://", "urn:", "a+b://"]),
    HOSTS,
    st.sampled_from(["", ":80", ":", ":x"]),
    PATHS,
)


def plain_find(table: Sequence[str], urls: bool, url: str | None, host: str | None) -> str | None:
    """Return the most specific entry that blocks a document, by comparing strings."""
    name = ascii_host(host or "" if url is None else host_of(url))
    if not name:
        return None
    if not urls:
        labels = [] if is_address(name) else [name[at + 1 :] for at, sign in enumerate(name) if sign == "."]
        return next((one for one in [name, *labels] if one in table), None)
    path, name = path_of(url or ""), without_mirror(name)
    ends = [len(path), *(match.start() for match in reversed(list(re.finditer("[/?&;]", path))))]
    return next((one for end in ends if (one := name + path[:end]) in table), None)


def listed(folder: Path, *entries: Sequence[str]) -> list[ListFile]:
    files = []
    for number, lines in enumerate(entries):
        path = folder / f"list{number}"
        path.write_text("\n".join(lines), "utf-8")
        files.append(ListFile(str(path), f"list{number}", "mixed"))
    return files


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    folder = tmp_path_factory.mktemp("lists")
    made = read_lists(listed(folder, *([one] for one in ENTRIES)))
    write_table(made, folder / "table")
    return open_table(folder / "table")


@settings(deadline=None, max_examples=400)
@given(rows=st.lists(st.tuples(st.one_of(st.none(), URLS), st.one_of(st.none(), HOSTS)), max_size=6))
def test_what_blocks_a_url_is_what_comparing_strings_finds(
    table: Table, rows: list[tuple[str | None, str | None]]
) -> None:
    columns = (pa.array([one[side] for one in rows], pa.string()) for side in (0, 1))
    found = table.find(*columns)
    keys: list[list[str]] = [[], []]
    for entry in ENTRIES:
        host, path = ascii_host(host_of(f"http://{entry}")), path_of(f"http://{entry}")
        keys[bool(path)].append(without_mirror(host) + path if path else host)
        keys[not path].append("")
    for side in (0, 1):
        expected = [plain_find(keys[side], side == 1, url, host) for url, host in rows]
        assert [keys[side][at] if at >= 0 else None for at in found[side].tolist()] == expected


def test_an_entry_takes_twelve_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    letters = np.array(list(string.ascii_lowercase))
    names = ["".join(letters[rng.integers(0, 26, 12)]) + ".example" for _ in range(20_000)]
    table = read_lists(listed(tmp_path, names))
    assert len(table.domains[0]) == len(set(names))
    assert sum(array.nbytes for array in table.domains) <= 12 * len(names)
    found, _ = table.find(pa.array([f"http://{name}/" for name in names]), pa.nulls(len(names), pa.string()))
    assert not found.any()


@pytest.mark.parametrize("count", [0, 1, 2, 5, 64])
def test_tables_of_few_entries(tmp_path: Path, count: int) -> None:
    names = [f"site{number}.example" for number in range(count)]
    write_table(read_lists(listed(tmp_path, [*names, "# comment", "", "  "])), tmp_path / "table")
    urls = pa.array([f"http://www.{name}/x" for name in [*names, "site.example"]])
    found, _ = open_table(tmp_path / "table").find(urls, pa.nulls(len(urls), pa.string()))
    assert found.tolist() == [0] * count + [-1]


def test_the_same_lists_make_the_same_file_and_it_holds_nothing_that_runs(tmp_path: Path) -> None:
    files = listed(tmp_path, ["bad.example"], ["page.example/a"])
    for name in ("one", "two"):
        write_table(read_lists(files), tmp_path / name)
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "two").read_bytes()
    head = json.loads(content[len(MAGIC) :].split(b"\n")[0])
    assert head["categories"] == ["list0", "list1"]


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "other", "head"])
def test_a_damaged_file_is_not_opened(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "table"
    write_table(read_lists(listed(tmp_path, [f"site{number}.example" for number in range(99)])), path)
    content = bytearray(path.read_bytes())
    if damage == "bit":
        content[-1 - len(content) // 4] ^= 1
    path.write_bytes(
        {"cut": content[:-70], "bit": content, "empty": b"", "other": b"x" * 999, "head": content[:40]}[damage]
    )
    with pytest.raises(ValueError, match=r"\w"):
        open_table(path)
