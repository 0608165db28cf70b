"""Writes the demo's crawl: real containers, some of them damaged, with blacklists and reference text beside them."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import zstandard

from pipelines.demo.blacklist import write_blacklists
from pipelines.demo.generated import Article
from pipelines.demo.html import page
from pipelines.demo.material import Material, gather, typical
from pipelines.demo.planted import Item, Planted
from pipelines.demo.planting import Crawl, plant_all, row
from pipelines.demo.sites import SITES
from pipelines.demo.warc_out import WarcOut
from shards.errors import UserError

WEB_FILES: Final = 3
WET_ARTICLES: Final = 24
MIN_COMMON: Final = 52
"""The articles that planting takes, and two to spare."""


def write_corpus(folder: Path, seed: int = 0) -> Planted:
    """Write crawl, blacklists and reference text below ``folder``, and what was planted as ``planted.json``.

    The same Python, libraries and ``seed`` give the same bytes.

    Returns:
        What was planted: every URL with the verdict that it must get.

    Raises:
        UserError: if this Python comes without the source of its standard library, or with too little text in it.
    """
    containers, reference = folder / "crawl", folder / "reference"
    containers.mkdir(parents=True, exist_ok=True)
    reference.mkdir(exist_ok=True)
    material = gather(seed)
    crawl = Crawl(random.Random(seed), [article.title for article in material.web])
    common = typical(material.web, material.reference)
    if len(common) < MIN_COMMON:
        raise UserError(
            f"the standard library of this Python has {len(common)} texts for the demo to plant; it needs {MIN_COMMON}",
            remedy="Run the demo with a complete installation of CPython",
        )
    crawl.rng.shuffle(common)
    plain = [article for article in material.web if article not in common]
    plant_all(crawl, material, common)
    _write_damaged(containers, crawl, common)
    _write_wet(containers, crawl, plain[:WET_ARTICLES])
    _write_web(containers, crawl, plain[WET_ARTICLES:] + common)
    _write_tables(containers, crawl, material)
    write_blacklists(folder / "blacklists")
    (reference / "en.txt").write_text("".join(f"{line}\n" for line in material.reference), encoding="utf-8")
    planted = Planted(tuple(crawl.items), tuple(material.notes), _text_bytes(material))
    planted.write(folder / "planted.json")
    return planted


def _write_web(folder: Path, crawl: Crawl, articles: Sequence[Article]) -> None:
    for article in articles:
        crawl.page(crawl.rng.choice(SITES), article)
    crawl.rng.shuffle(crawl.pages)
    for number in range(WEB_FILES):
        warc = WarcOut(f"web-{number:02}.warc.gz")
        for add in crawl.pages[number::WEB_FILES]:
            add(warc)
        warc.write(folder)


def _write_wet(folder: Path, crawl: Crawl, articles: Sequence[Article]) -> None:
    warc = WarcOut("notes.warc.wet.gz")
    for article in articles:
        warc.conversion(crawl.address(crawl.rng.choice(SITES), article.title, "notes"), article.text)
    warc.write(folder)


def _write_tables(folder: Path, crawl: Crawl, material: Material) -> None:
    docs = [row(f"https://docs.stdlib.example/{name}", text) for name, text in material.docs] + crawl.rows
    crawl.rng.shuffle(docs)
    (folder / "docs.jsonl.zst").write_bytes(zstandard.ZstdCompressor(level=9).compress(_lines(docs)))
    code = [row(f"https://src.stdlib.example/{path}", text) for path, text in material.code]
    (folder / "code.jsonl.gz").write_bytes(gzip.compress(_lines(code), 6, mtime=0))


def _write_damaged(folder: Path, crawl: Crawl, common: list[Article]) -> None:
    """Write a WARC file whose download broke off, and two feeds with one malformed line each."""
    site = SITES[0]
    warc = WarcOut("broken-off.warc.gz")
    articles = [common.pop() for _ in range(3)]
    urls = [crawl.address(site, article.title, "saved") for article in articles]
    for url, article in zip(urls, articles, strict=True):
        warc.response(url, page(site, article.title, article.paragraphs))
    warc.write(folder, cut_short=True)
    crawl.items.append(Item("gzip that breaks off", "", ("read/truncated",), beside=urls[0]))
    for name, kind, reason, damaged in (
        (
            "feed-a",
            "line that is no JSON",
            "bad_json",
            b'{"url": "https://feeds.example/a/2", "text": "The line ends here\n',
        ),
        (
            "feed-b",
            "lone surrogate",
            "bad_encoding",
            b'{"url": "https://feeds.example/b/2", "text": "Half a pair: \\ud83d."}\n',
        ),
    ):
        good = [row(f"https://feeds.example/{name[-1]}/{n}", common.pop().text) for n in (1, 3)]
        (folder / f"{name}.jsonl").write_bytes(_lines(good[:1]) + damaged + _lines(good[1:]))
        crawl.items.append(Item(kind, "", (f"read/{reason}",), beside=good[0]["url"]))


def _lines(rows: Iterable[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _text_bytes(material: Material) -> dict[str, int]:
    texts: dict[str, Iterable[str]] = {
        "web": (article.text for article in material.web),
        "docs": (text for _, text in material.docs),
        "code": (text for _, text in material.code),
        "reference": material.reference,
    }
    return {kind: sum(len(text.encode()) for text in found) for kind, found in texts.items()}
