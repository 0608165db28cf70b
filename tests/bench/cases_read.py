"""The links that take a crawl apart: readers, the URL blacklist, extraction."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from corpus import Corpus, gzip_bytes
from fastwarc.warc import ArchiveIterator
from harness import Case
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from shards.files import open_input
from stages.base import Stage
from stages.html.charset import charset_of, decode
from stages.judges.extract_html import ExtractHtml
from stages.judges.url_blacklist import UrlBlacklist
from stages.marking import mark
from stages.readers import Digest, Source, read

BLOCK = 32 << 10


def apply(stage: Stage, batches: list[Any]) -> None:
    """Mark every batch, as a pass does."""
    for batch in batches:
        mark(stage, batch)


def exhaust(path: Path) -> int:
    """Read a source to its end, with its digest as a pass does, and return its records."""
    return sum(batch.num_rows for batch in read(Source(0, str(path)), open_input, Digest()))


def exhaust_alone(path: Path) -> int:
    """Read a source to its end without its digest."""
    return sum(batch.num_rows for batch in read(Source(0, str(path)), open_input))


def cases(corpus: Corpus) -> Iterator[Case]:
    """Yield the cases."""
    yield _warc("read_warc", corpus.warc, "the documents as pages in WARC, one gzip member per record")
    if corpus.real_warc is not None:
        yield _warc("read_warc_real", corpus.real_warc, "a crawled WARC file")
    yield Case(
        "read_jsonl",
        lambda: exhaust(corpus.jsonl),
        {
            "zstandard alone": lambda: _unzstd(corpus.jsonl),
            "zstandard + json.loads": lambda: [json.loads(line) for line in _unzstd(corpus.jsonl).splitlines()],
            "without the digest": lambda: exhaust_alone(corpus.jsonl),
        },
        len(corpus.texts),
        corpus.text_bytes,
        note="the documents in JSONL under zstd; input counted as text",
    )
    parquet = corpus.jsonl.with_name("documents.parquet")
    pq.write_table(pa.table({"text": corpus.texts, "url": corpus.urls}), parquet, row_group_size=500)
    yield Case(
        "read_parquet",
        lambda: exhaust(parquet),
        {
            "pyarrow + to_pylist": lambda: pq.read_table(parquet, use_threads=False).to_pylist(),
            "without the digest": lambda: exhaust_alone(parquet),
        },
        len(corpus.texts),
        corpus.text_bytes,
        note="the documents in Parquet under Snappy, 500 rows a row group; input counted as text",
    )
    blacklist = UrlBlacklist(lists=(str(corpus.blacklist),))
    listed = frozenset(corpus.blacklist.read_text().splitlines())
    hosts = [batch.column("host").to_pylist() for batch in corpus.batches]
    yield Case(
        "url_blacklist",
        lambda: apply(blacklist, corpus.batches),
        {"set of strings, every suffix": lambda: [_suffixes_in(listed, host) for part in hosts for host in part]},
        len(corpus.texts),
        sum(map(len, corpus.urls)),
        note=f"{len(listed):,} listed domains; the set takes ten times the memory and only looks up ready hosts",
    )
    yield _extraction("extract_html", corpus.pages, "the documents inside generated pages")
    if corpus.real_pages:
        yield _extraction("extract_html_real", corpus.real_pages, "crawled pages")


def _warc(name: str, path: Path, note: str) -> Case:
    return Case(
        name,
        lambda: exhaust(path),
        {
            "zlib alone": lambda: inflate(path),
            "fastwarc alone": lambda: _fastwarc(path),
            "without the digest": lambda: exhaust_alone(path),
        },
        exhaust(path),
        gzip_bytes(path),
        note=f"{note}; records of every type, input counted decompressed",
    )


def inflate(path: Path) -> int:
    """Decompress a file of gzip members with zlib, keeping nothing; return its bytes."""
    total = 0
    with path.open("rb") as file:
        member = zlib.decompressobj(31)
        while block := file.read(BLOCK):
            while block:
                total += len(member.decompress(block))
                block = member.unused_data
                if member.eof:
                    member = zlib.decompressobj(31)
    return total


def _fastwarc(path: Path) -> int:
    with path.open("rb") as file:
        return sum(len(record.reader.read()) for record in ArchiveIterator(file, parse_http=True))


def _unzstd(path: Path) -> bytes:
    with path.open("rb") as file:
        return zstandard.ZstdDecompressor().stream_reader(file).read()


def _suffixes_in(listed: frozenset[str], host: str) -> bool:
    while host:
        if host in listed:
            return True
        host = host.partition(".")[2]
    return False


def _extraction(name: str, batches: list[Any], note: str) -> Case:
    stage = ExtractHtml()
    rows = [row for batch in batches for row in batch.select(["payload", "media_type"]).to_pylist()]
    pages = [decode(row["payload"], charset_of(row["payload"], row["media_type"], html=True)) for row in rows]
    return Case(
        name,
        lambda: apply(stage, batches),
        {"resiliparse alone": lambda: extract_all(pages)},
        len(pages),
        sum(len(row["payload"]) for row in rows),
        note=f"{note}; the floor is given decoded pages",
    )


def extract_all(pages: list[str]) -> list[str]:
    """Extract with resiliparse, with the settings of ``extract_html_v1``."""
    return [
        extract_plain_text(
            HTMLTree.parse(page), main_content=True, comments=False, alt_texts=False, preserve_formatting=True
        )
        for page in pages
    ]
