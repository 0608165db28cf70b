"""The documents that every link is measured on: real prose where it lies beside the checkout, else generated."""

from __future__ import annotations

import gzip
import io
import json
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import zstandard

from pipelines.demo.html import Site, page
from pipelines.demo.material import gather
from pipelines.demo.warc_out import WarcOut
from shards.files import open_input
from stages.readers import Source, read

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
PROSE = ("quality/dclm_human_labels.jsonl.zst", "text/wiki/en_wikipedia.jsonl.zst")
REAL_HTML = "html/wcxb_gold.jsonl.zst"
REAL_WARC = "crawl/real/aut__example.warc.gz"
LISTED_DOMAINS = 200_000


@dataclass(frozen=True)
class Corpus:
    """Documents in every form in which a link takes them.

    Attributes:
        origin: where the text comes from, in words.
        texts, urls: the documents.
        warc: the documents as pages in a record-per-member WARC, with request and metadata records.
        jsonl: the same documents in JSONL under zstd.
        real_warc: a crawled file, or None.
        batches: the documents as the JSONL reader gives them, language ``en``.
        pages: the documents as the WARC reader gives them: HTML payloads.
        real_pages: crawled HTML as payloads; empty where there is none.
        blacklist: a list of ``LISTED_DOMAINS`` domains.
    """

    origin: str
    texts: list[str]
    urls: list[str]
    warc: Path
    jsonl: Path
    real_warc: Path | None
    batches: list[pa.RecordBatch]
    pages: list[pa.RecordBatch]
    real_pages: list[pa.RecordBatch]
    blacklist: Path

    @property
    def text_bytes(self) -> int:
        """UTF-8 bytes of all texts."""
        return sum(len(text.encode()) for text in self.texts)


def make_corpus(folder: Path, documents: int, *, generated: bool) -> Corpus:
    """Write the corpus to ``folder``; ``generated`` leaves the shared data aside."""
    shared = not generated and all((SHARED / name).is_file() for name in PROSE)
    pairs = _shared_prose(documents) if shared else _generated_prose(documents)
    texts, urls = [text for _, text in pairs], [url for url, _ in pairs]
    warc, jsonl = _write_warc(folder, texts, urls), _write_jsonl(folder / "documents.jsonl.zst", texts, urls)
    real_pages = _real_pages(folder) if shared and (SHARED / REAL_HTML).is_file() else []
    real_warc = SHARED / REAL_WARC
    return Corpus(
        origin=f"shared data ({', '.join(PROSE)}, in turns)" if shared else "generated from the standard library",
        texts=texts,
        urls=urls,
        warc=warc,
        jsonl=jsonl,
        real_warc=real_warc if shared and real_warc.is_file() else None,
        batches=[_english(batch) for batch in _documents(jsonl)],
        pages=_documents(warc),
        real_pages=real_pages,
        blacklist=_write_blacklist(folder / "domains"),
    )


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open("rb") as file:
        stream = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8")
        return [json.loads(line) for line in stream]


def _shared_prose(documents: int) -> list[tuple[str, str]]:
    """Take from each file in turn, so that short web pages and long articles mix at any size."""
    columns = [[record["text"] for record in _lines(SHARED / name)] for name in PROSE]
    mixed = [column[at] for at in range(max(map(len, columns))) for column in columns if at < len(column)]
    return [(_url(number), text) for number, text in enumerate(mixed[:documents]) if text.strip()]


def _generated_prose(documents: int) -> list[tuple[str, str]]:
    material = gather(1)
    texts = [article.text for article in material.web] + [text for _, text in material.docs]
    # Beyond what there is, paragraphs are dealt anew: other documents, though of the same sentences.
    paragraphs = [paragraph for text in texts for paragraph in text.split("\n\n")]
    rng = random.Random(1)
    while len(texts) < documents:
        texts.append("\n\n".join(rng.sample(paragraphs, 12)))
    return [(_url(number), text) for number, text in enumerate(texts[:documents])]


def _url(number: int) -> str:
    return f"https://www.site{number % 97}.example.org/archive/{number // 97}/page-{number}.html?view=full"


def _write_warc(folder: Path, texts: list[str], urls: list[str]) -> Path:
    out = WarcOut("documents.warc.gz")
    site = Site("www.site.example.org", "The Site", ("News", "Places", "People", "Archive"))
    for text, url in zip(texts, urls, strict=True):
        title, _, rest = text.partition("\n")
        paragraphs = [line for line in rest.split("\n") if line.strip()] or [title]
        out.response(url, page(site, title[:120], paragraphs, ["Another page", "And one more"]))
    return out.write(folder)


def _write_jsonl(path: Path, texts: list[str], urls: list[str]) -> Path:
    lines = [json.dumps({"text": t, "url": u}, ensure_ascii=False) for t, u in zip(texts, urls, strict=True)]
    path.write_bytes(zstandard.ZstdCompressor(3).compress(("\n".join(lines) + "\n").encode()))
    return path


def _real_pages(folder: Path) -> list[pa.RecordBatch]:
    out = WarcOut("real_pages.warc.gz")
    for record in _lines(SHARED / REAL_HTML):
        out.response(record["url"], record["html"].encode())
    return _documents(out.write(folder))


def _documents(path: Path) -> list[pa.RecordBatch]:
    batches = []
    for batch in read(Source(0, str(path)), open_input):
        kept = batch.filter(batch.column("dropped_by").is_null())
        if kept.num_rows:
            batches.append(kept)
    return batches


def _english(batch: pa.RecordBatch) -> pa.RecordBatch:
    place = batch.schema.get_field_index("language")
    return batch.set_column(place, batch.schema.field(place), pa.array(["en"] * batch.num_rows))


def _write_blacklist(path: Path) -> Path:
    path.write_text("".join(f"listed{number}.example.net\n" for number in range(LISTED_DOMAINS)))
    return path


def gzip_bytes(path: Path) -> int:
    """Bytes of a gzip file once decompressed."""
    with gzip.open(path) as stream:
        return sum(len(piece) for piece in iter(lambda: stream.read(1 << 20), b""))
