"""The golden of the readers: the rows that come out of small files of every container, whole and damaged.

Gzip members are stored, not compressed, so that no version of zlib moves the offset of a record.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from pipelines.passes.judge import Judge
from shards.schema import UNKNOWN_LANGUAGE, make_doc_id
from stages.readers import RECORD, Source, read
from tests.golden.golden import FOLDER, Case, Golden, Section, digest, plain

NAME: Final = "readers"
PATH: Final = FOLDER / f"{NAME}.json"

_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_DATE: Final = "2024-05-06T07:08:09Z"
_PAGE: Final = b"<html><body><p>The old mill stands by the river.</p></body></html>"


def _record(kind: str, body: bytes, length: int | None = None, **fields: str) -> bytes:
    named = {"WARC-Type": kind, "WARC-Target-URI": "http://Mill.Example:8080/a?b", "WARC-Date": _DATE}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    header = "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    size = len(body) if length is None else length
    return f"WARC/1.1\r\n{header}Content-Length: {size}\r\n\r\n".encode() + body + b"\r\n\r\n"


def _response(body: bytes, status: str = "200 OK", **fields: str) -> bytes:
    named = {"Content-Type": "text/html; charset=utf-8"}
    named |= {name.replace("_", "-"): value for name, value in fields.items()}
    head = f"HTTP/1.1 {status}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in named.items() if value)
    return _record("response", head.encode() + b"\r\n" + body, Content_Type="application/http; msgtype=response")


def _chunked(*parts: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


_RECORDS: Final = [
    _record("warcinfo", b"software: none\r\n", Content_Type="application/warc-fields"),
    _record("request", b"GET / HTTP/1.1\r\n\r\n", Content_Type="application/http; msgtype=request"),
    _response(_PAGE),
    _response(b"gone", status="404 Not Found"),
    _response(b"", status="301 Moved Permanently", Location="/b"),
    _response(b""),
    _response(b"%PDF-1.4", Content_Type="application/pdf"),
    _response(b"The old mill.", Content_Type="text/plain; charset=latin-1"),
    _response(_chunked(_PAGE[:20], _PAGE[20:]), Transfer_Encoding="chunked"),
    _response(gzip.compress(_PAGE, 0, mtime=0), Content_Encoding="gzip"),
    _response(b"not gzip", Content_Encoding="gzip"),
    _response(_PAGE, Content_Encoding="compress"),
    _response(_PAGE, Content_Type=""),
    _record("response", b"no status line\r\n\r\nx", Content_Type="application/http"),
    _record("resource", _PAGE, Content_Type="text/html"),
    _record("conversion", "Die Mühle am Fluss.".encode(), Content_Type="text/plain"),
    _record("conversion", b"bytes \xff\xfe", Content_Type="text/plain"),
    _record("revisit", b"", WARC_Profile="http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"),
    _record("continuation", b"rest", WARC_Segment_Number="2"),
    _record("conversion", b"no date", Content_Type="text/plain", WARC_Date="", WARC_Target_URI=""),
    _record("conversion", b"x" * 3_000, Content_Type="text/plain"),
]
_MEMBERS: Final = [gzip.compress(record, 0, mtime=0) for record in _RECORDS]

_LINES: Final = [
    b'{"text": "The old mill.", "url": "http://a.example/1", "date": "2024-05-06"}',
    b'{"text": "M\\u00fchle", "url": "", "meta": {"url": "http://b.example/2"}}',
    b"",
    b"   ",
    b'{"text": ',
    b"[1, 2]",
    b'{"url": "http://c.example/"}',
    b'{"text": 5}',
    b'{"text": null}',
    b'{"text": " \\n "}',
    b'{"text": "\\ud800"}',
    b'{"text": "\xff"}',
    '{"text": "水車小屋", "url": 7, "date": 1714979289}'.encode(),
    b'{"text": "' + b"x" * 3_000 + b'"}',
    b'{"text": "no line feed at the end"}',
]
_JSONL: Final = b"\n".join(_LINES)


def _parquet(**columns: pa.Array) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, row_group_size=2)
    return file.getvalue()


_TABLE: Final = {
    "text": pa.array(["The old mill.", None, " ", "Mühle", "x" * 3_000]),
    "url": pa.array(["http://a.example/", "http://b.example/", None, "", "http://e.example/"]),
}

FILES: Final[dict[str, tuple[bytes, dict[str, Any]]]] = {
    "plain.warc": (b"".join(_RECORDS), {"max_record_bytes": 2_000}),
    "member-per-record.warc.gz": (b"".join(_MEMBERS), {"licence": "CC0", "domain": "books"}),
    "one-member.warc.gz": (gzip.compress(b"".join(_RECORDS[:4]), 0, mtime=0), {}),
    "cut.warc.gz": (b"".join(_MEMBERS[1:4])[:-40], {}),
    "damaged-member.warc.gz": (b"".join([*_MEMBERS[:3], b"\0" * 50, *_MEMBERS[3:5]]), {}),
    "zstd.warc.zst": (zstandard.compress(b"".join(_RECORDS[:4])), {}),
    "wrong-length.warc": (_record("conversion", b"x" * 40, 10, Content_Type="text/plain") + _RECORDS[15], {}),
    "length-past-the-end.warc": (_RECORDS[15] + _record("conversion", b"short", 500), {}),
    "no-warc.warc": (b"this is not a record\r\n\r\n" * 3, {"format": "warc"}),
    "lines.jsonl": (_JSONL, {"max_record_bytes": 2_000}),
    "crlf.jsonl": (_JSONL.replace(b"\n", b"\r\n") + b"\r\n", {"url_key": "meta.url"}),
    "lines.jsonl.gz": (gzip.compress(_JSONL, 0, mtime=0), {}),
    "lines.jsonl.zst": (zstandard.compress(_JSONL), {}),
    "cut.jsonl.gz": (gzip.compress(_JSONL, 0, mtime=0)[:-2_000], {}),
    "with-mark.jsonl": (b"\xef\xbb\xbf" + _LINES[0], {}),
    "table.parquet": (_parquet(**_TABLE), {"max_record_bytes": 2_000}),
    "other-keys.parquet": (_parquet(content=_TABLE["text"]), {"text_key": "content", "url_key": "link"}),
    "no-text.parquet": (_parquet(url=_TABLE["url"]), {}),
    "damaged.parquet": (b"PAR1" + bytes(60), {}),
    "numbers.parquet": (_parquet(text=pa.array([1, 2, 3])), {}),
    "empty": (b"", {}),
    "empty.jsonl": (b"", {"format": "jsonl"}),
    "blank-lines.jsonl": (b"\n\n\n", {}),
    "image.png": (b"\x89PNG\r\n\x1a\n" + bytes(100), {}),
    "page.html": (_PAGE, {}),
    "nothing.gz": (gzip.compress(b"", 0, mtime=0), {}),
}


def compute() -> Golden:
    """Return the golden of the readers, as of now: a case is a file, its output the rows by record index."""
    sections: dict[str, Section] = {}
    for name, (data, options) in FILES.items():
        sections[name] = Section(options, {"rows": Case(_key(data), _rows(name, data, options))})
    # Readers have no version of their own: the pass that reads raises its version when they return something else.
    return Golden(NAME, sections, {"judge": Judge.version})


def compute_all() -> dict[Path, Golden]:
    """Return the one golden of the readers, by where it is kept."""
    return {PATH: compute()}


def _key(data: bytes) -> str:
    """Return the digest of what an input holds, where its bytes depend on the version of the library that wrote it."""
    if data.endswith(b"PAR1"):
        table = pq.read_table(io.BytesIO(data))
        return digest(json.dumps([str(table.schema), table.to_pylist()]).encode())
    if data.startswith(_ZSTD_MAGIC):
        return digest(zstandard.ZstdDecompressor().decompress(data))
    return digest(data)


def _rows(name: str, data: bytes, options: dict[str, Any]) -> dict[str, Any]:
    source = Source(index=3, path=name, **options)
    common = {"source_index": 3, "language": UNKNOWN_LANGUAGE, "domain": source.domain, "failed": False}
    blank = dict.fromkeys(RECORD.names) | common
    rows = pa.Table.from_batches(read(source, lambda _: io.BytesIO(data)), RECORD).to_pylist()
    return {
        str(row.pop("doc_id") - make_doc_id(3, 0)): {key: plain(row[key]) for key in row if row[key] != blank[key]}
        for row in rows
    }
