"""The input of the golden recipes, written by fixed code: a few hundred documents with duplicates, damage and spam."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

_VOCABULARY: Final = (
    "the of and to in a is that it was on for with as by at from the of and to in mill river wheel stone valley grain "
    "house garden road village miller children water dam sack gear museum floor winter summer morning evening bridge "
    "farm horse bread fire light window door wall roof field hill forest stream ground old new small great long short "
    "quiet cold warm deep high first last never always often again stands leaves follows turns tells builds carries "
    "keeps makes takes finds sees hears knows says works sleeps begins ends grows falls rises breaks opens closes"
)
_WORDS: Final = _VOCABULARY.split()


def _text(seed: int, words: int) -> str:
    """Return sentences in lines; ``random()`` alone is promised to stay the same from version to version."""
    rng = random.Random(seed)
    picked = [_WORDS[int(rng.random() * len(_WORDS))] for _ in range(words)]
    for start in range(0, words, 11):
        picked[start] = picked[start].capitalize()
        picked[min(start + 10, words - 1)] += ".\n" if start % 33 == 22 else "."
    return " ".join(picked)


def _edited(text: str, every: int) -> str:
    return " ".join(f"edit{at}" if at % every == 5 else word for at, word in enumerate(text.split(" ")))


def _lines(rows: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def _rows(name: str, first: int, count: int, words: int) -> list[dict[str, object]]:
    hosts = ["a.example", "b.example", "en.wiki.example"]
    return [
        {"url": f"http://{hosts[n % 3]}/{name}/{n}", "text": _text(first + n, words + n % 40), "date": "2024-05-06"}
        for n in range(count)
    ]


def _member(kind: str, url: str, body: bytes, media: str) -> bytes:
    head = f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-06T07:08:09Z\r\n"
    record = f"{head}Content-Type: {media}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body + b"\r\n\r\n"
    return gzip.compress(record, 0, mtime=0)


def _page(url: str, text: str, status: str = "200 OK") -> bytes:
    paragraphs = "".join(f"<p>{line.strip()}</p>" for line in text.split("\n"))
    html = f"<html><body><nav><a href=/>Home</a></nav><article><h1>Page</h1>{paragraphs}</article></body></html>"
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    return _member("response", url, (head + html).encode(), "application/http; msgtype=response")


def write_corpus(folder: Path) -> None:
    """Write all inputs of all golden recipes into ``folder``."""
    web, more, books = _rows("web", 0, 40, 60), _rows("more", 100, 40, 60), _rows("books", 200, 24, 140)
    for n in range(6):
        more.append({"url": f"http://copy.example/{n}", "text": str(web[5 * n]["text"]).replace(" ", "  ", 4)})
        more.append({"url": f"http://near.example/{n}", "text": _edited(str(books[n]["text"]), 60 + 10 * n)})
    more += [
        {"url": "http://short.example/", "text": "Too short."},
        {"url": "http://loop.example/", "text": "the wheel turns and the stone turns and " * 30},
        {"url": "http://end.example/", "text": _text(900, 60) + " <|endoftext|> " + _text(901, 30)},
    ]
    (folder / "web-0.jsonl").write_bytes(
        _lines(web[:20]) + b'{"text": \n{"text": 5}\n{"url": "x"}\n' + _lines(web[20:])
    )
    (folder / "web-1.jsonl.gz").write_bytes(gzip.compress(_lines(more), 0, mtime=0))
    (folder / "books.jsonl").write_bytes(_lines(books))
    (folder / "reference.txt").write_text("\n".join(_text(1_000 + n, 22) for n in range(60)), encoding="utf-8")
    (folder / "list.txt").write_text("spam.example\nads.example/banner\n", encoding="utf-8")
    pages = [_page(f"http://site{n % 4}.example/{n}", _text(300 + n, 50 + n)) for n in range(36)]
    pages[4:4] = [
        _member("warcinfo", "", b"software: none\r\n", "application/warc-fields"),
        _page("http://spam.example/1", _text(400, 60)),
        _page("http://ads.example/banner/2", _text(401, 60)),
        _page("http://gone.example/", "gone", "404 Not Found"),
        _page("http://empty.example/", ""),
        _page("http://mirror.example/", _edited(_text(303, 53), 40)),
        b"\0" * 30,
    ]
    for n, part in enumerate((pages[:20], pages[20:])):
        (folder / f"pages-{n}.warc.gz").write_bytes(b"".join(part))
    texts = [_text(300 + 3 * n, 50 + 3 * n) for n in range(5)] + [_text(500 + n, 40) for n in range(15)]
    conversions = [
        _member("conversion", f"http://wet.example/{n}", text.encode(), "text/plain") for n, text in enumerate(texts)
    ]
    (folder / "text.warc.wet.gz").write_bytes(b"".join(conversions)[:-20])
    table = pa.table(
        {
            "content": [_text(600 + n, 40) if n % 9 else None for n in range(30)],
            "link": [f"http://rows.example/{n}" for n in range(30)],
        }
    )
    pq.write_table(table, folder / "rows.parquet", row_group_size=8)
