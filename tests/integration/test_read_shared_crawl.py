"""Every catalogued crawl file is read without hanging, and no record of it is lost silently."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pytest
from fastwarc.warc import ArchiveIterator

from stages.readers import READ, READ_FAILURES, READ_REASONS, RECORD, Source, read
from stages.readers.decompress import Stream
from stages.readers.detect import compression_of
from stages.readers.warc import PROBE, records

pytestmark = [pytest.mark.integration, pytest.mark.shared_data]

DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.fixture(scope="module")
def catalogue() -> dict[str, str]:
    """What a correct program finds, by file below ``crawl/``."""
    if not (DATA / "MANIFEST.jsonl").is_file():
        pytest.skip("the crawl files need the shared data folder beside the checkout")
    entries = map(json.loads, (DATA / "MANIFEST.jsonl").read_text(encoding="utf-8").splitlines())
    return {entry["file"]: entry["expect"] for entry in entries if entry["file"].startswith("crawl/")}


def open_file(path: str) -> BinaryIO:
    return Path(path).open("rb")


def rows(name: str) -> list[dict[str, Any]]:
    batches = list(read(Source(index=0, path=str(DATA / name)), open_file))
    assert all(batch.schema.equals(RECORD) for batch in batches)
    return pa.Table.from_batches(batches).to_pylist()


def reasons(name: str) -> Counter[str | None]:
    return Counter(row["reason"] for row in rows(name))


def record_types(name: str) -> Counter[str]:
    with (DATA / name).open("rb") as raw:
        compression = compression_of(raw.read(8))
        raw.seek(0)
        return Counter(record.type for record in records(Stream(raw, compression, PROBE), 16 << 20))


def expected_types(expect: str) -> Counter[str]:
    if expect.startswith("{"):
        return Counter(cast(dict[str, int], json.loads(expect)["types"]))
    listed = expect.removeprefix("warcio:").partition(";")[0]
    found: Counter[str] = Counter()
    for name, count in re.findall(r"(\w+):(\d+)", listed):
        found[name.lower()] += int(count)
    return found


def test_every_file_ends_and_every_record_of_it_is_counted_once(catalogue: dict[str, str]) -> None:
    start = time.process_time()
    total: Counter[str | None] = Counter()
    for name in catalogue:
        found = rows(name)
        assert found, f"{name} gave nothing"
        assert len({row["doc_id"] for row in found}) == len(found)
        for row in found:
            marked = row["reason"] is not None
            assert marked == (row["dropped_by"] == READ)
            assert marked == (row["text"] is None and row["payload"] is None)
            assert row["failed"] == (row["reason"] in READ_FAILURES)
            assert not row["failed"] or row["detail"], f"{name} fails without saying why"
            assert row["offset"] <= 50_000_000
            total[row["reason"]] += 1
    assert len(catalogue) == 195
    assert set(total) - {None} <= {*READ_REASONS, *READ_FAILURES}
    assert total[None] > 500
    assert time.process_time() - start < 30


def test_undamaged_files_give_the_record_types_of_the_catalogue(catalogue: dict[str, str]) -> None:
    compared = 0
    for name, expect in catalogue.items():
        if name.startswith(("crawl/small/", "crawl/real/")):
            assert record_types(name) == expected_types(expect), name
            compared += sum(record_types(name).values())
    assert compared > 1_500


def test_real_files_give_as_many_records_as_fastwarc(catalogue: dict[str, str]) -> None:
    for name in catalogue:
        if name.startswith("crawl/real/"):
            with (DATA / name).open("rb") as raw:
                count = sum(1 for _ in ArchiveIterator(raw, parse_http=False))
            assert len(rows(name)) == count, name


@pytest.mark.parametrize(
    ("name", "documents", "marks"),
    [
        # 279 whole records, then the cut one, which FastWARC and warcio give as if it were whole.
        ("derived/blackbook-cut-600000.warc.gz", 33, {"truncated": 1}),
        ("malformed/chatnoir-resiliparse__clipped.warc.gz", 0, {"truncated": 1}),
        ("malformed/gowarc__corrupted-trailing-bytes.warc.gz.open", 30, {"decompression": 1}),
        ("malformed/warcio__example-bad-non-chunked.warc.gz", 1, {}),
        ("malformed/warcio.js__example-bad-length.warc", 0, {"bad_record": 1}),
        ("malformed/ipwb__broken.warc", 1, {"bad_record": 1}),
        ("malformed/jwat__invalid-warcfile-record-then-garbage.warc", 1, {"bad_record": 1}),
        ("malformed/solrwayback__Evil-Warc-Headers.warc", 0, {"truncated": 1}),
        ("malformed/webarchive-commons__link-extraction-test.warc", 7, {}),
        ("malformed/webarchive__invalid-warcrecord-3.warc", 3, {"bad_record": 2, "truncated": 1}),
        ("malformed/webarchive__invalid-empty.warc", 0, {"empty_file": 1}),
        ("malformed/storm-crawler__unparsable-date.warc.gz", 0, {}),
    ],
)
def test_damaged_files_keep_what_is_whole_and_count_what_is_not(
    catalogue: dict[str, str], name: str, documents: int, marks: dict[str, int]
) -> None:
    found = reasons(f"crawl/{name}")
    assert found[None] == documents
    assert {reason: found[reason] for reason in found if reason in READ_FAILURES} == marks


def test_the_cut_crawl_loses_no_whole_record(catalogue: dict[str, str]) -> None:
    whole, cut = rows("crawl/real/aut__example.warc.gz"), rows("crawl/derived/blackbook-cut-600000.warc.gz")
    assert len(cut) == 280
    assert cut[:279] == whole[:279]
    assert (cut[279]["reason"], cut[279]["offset"]) == ("truncated", whole[279]["offset"])
    assert whole[279]["offset"] < 600_000 < whole[280]["offset"]


def test_zstd_archives_without_a_dictionary_hold_the_same_documents_as_gzip(catalogue: dict[str, str]) -> None:
    def content(name: str) -> list[tuple[Any, ...]]:
        return [(row["url"], row["text"], row["payload"], row["reason"]) for row in rows(name)]

    expected = content("crawl/real/dolma__sample-0001.warc.gz")
    assert content("crawl/derived/dolma-sample-0001.perrecord.warc.zst") == expected
    assert content("crawl/derived/dolma-sample-0001.singleframe.warc.zst") == expected


def test_containers_that_are_not_read_are_one_drop_each(catalogue: dict[str, str]) -> None:
    unread = [name for name in catalogue if re.search(r"\.(arc|arc\.gz|wacz|bz2|lz4)$|\.dict\.", name)]
    assert len(unread) >= 15
    for name in unread:
        assert reasons(name) == {"unsupported_format": 1}, name
