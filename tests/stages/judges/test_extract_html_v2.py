"""Extraction by learnt blocks or by rules: text out of payloads, whatever the page; other rows untouched."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from shards.schema import DOCUMENT
from stages.base import Stage
from stages.judges.extract_html_v2 import ExtractHtmlV2
from stages.marking import mark
from tests.stages.support import stage_of

ARTICLE = """<html><head><title>Title</title><script>var x = 1;</script></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/a">About us</a></li></ul></nav>
<article><h1>Of rivers</h1><p>{}</p><p>The second paragraph says somewhat more about the first.</p></article>
<footer>Copyright and cookies</footer></body></html>"""


SCORES = ["extract_html_v2.excess", "extract_html_v2.chars", "extract_html_v2.share"]


def batch(*rows: dict[str, Any]) -> pa.RecordBatch:
    base = {"source_index": 0, "offset": 0, "language": "und", "domain": "web", "failed": False}
    full = [dict.fromkeys(DOCUMENT.names) | base | {"doc_id": i} | row for i, row in enumerate(rows)]
    return pa.RecordBatch.from_pylist(full, schema=DOCUMENT)


def extracted(payload: bytes, media_type: str | None = "text/html", **options: Any) -> dict[str, Any]:
    (row,) = mark(stage_of(ExtractHtmlV2, **options), batch({"payload": payload, "media_type": media_type})).to_pylist()
    assert row["payload"] is None
    return dict(row)


def test_the_article_stays_and_the_navigation_goes() -> None:
    row = extracted(ARTICLE.format("Rivers run to the sea, as they always did." * 4).encode())
    assert row["text"].startswith("Of rivers")
    assert "Rivers run to the sea" in row["text"]
    for gone in ("var x", "About us", "Copyright"):
        assert gone not in row["text"]
    assert "About us" in extracted(ARTICLE.encode(), main_content=False)["text"]


@pytest.mark.parametrize(
    ("codec", "media_type", "meta"),
    [
        ("koi8-r", "text/html; charset=koi8-r", ""),
        ("cp1251", "text/html", "<meta charset=windows-1251>"),
        ("utf-16", "text/html", ""),
        ("utf-8", None, ""),
        ("cp1251", "text/html", ""),
    ],
)
def test_charset_by_header_page_mark_or_detection(codec: str, media_type: str | None, meta: str) -> None:
    text = "Реки текут в море, как они всегда это делали, и никто не спрашивает, почему они это делают."
    assert text in extracted((meta + ARTICLE.format(text)).encode(codec), media_type)["text"]


def test_rows_with_text_or_marks_are_left_alone_and_rows_are_judged_apart() -> None:
    rows: list[dict[str, Any]] = [
        {"text": "plain"},
        {"payload": ARTICLE.encode(), "media_type": "text/html"},
        {"payload": b"<script>1</script>", "media_type": "text/html"},
        {"dropped_by": "read", "reason": "empty"},
    ]
    whole = mark(stage_of(ExtractHtmlV2), batch(*rows))
    assert whole.schema.names == [*DOCUMENT.names, *SCORES]
    assert whole.column("reason").to_pylist() == [None, None, "no_text", "empty"]
    assert whole.column("dropped_by").to_pylist() == [None, None, "extract_html_v2", "read"]
    assert whole.column("text").to_pylist()[0] == "plain"
    article = len(whole.column("text")[1].as_py())
    assert whole.column("extract_html_v2.chars").to_pylist() == [None, article, 0, None]
    assert whole.column("extract_html_v2.excess").null_count == 4
    cut = [mark(stage_of(ExtractHtmlV2), batch(*rows).slice(i, 1)) for i in range(4)]
    assert pa.Table.from_batches(cut).to_pylist() == whole.to_pylist()


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"<html></html>", b"\xff\xfe", b"<!--", b"<" * 999, b"<p>&#0;"])
def test_pages_without_text_are_dropped_or_kept_but_never_fail(payload: bytes) -> None:
    row = extracted(payload)
    assert not row["failed"]
    assert (row["text"] is None) == (row["reason"] == "no_text")


def test_a_short_page_is_no_text_where_the_recipe_says_so() -> None:
    row = extracted(ARTICLE.encode(), min_chars=10_000)
    assert (row["reason"], row["text"]) == ("no_text", None)
    assert row["value"] == row["extract_html_v2.chars"] == len(extracted(ARTICLE.encode())["text"])
    with pytest.raises(ValidationError):
        stage_of(ExtractHtmlV2, min_char=5)


@pytest.mark.parametrize(
    ("page", "value"),
    [("<div>" * 100_000 + "hello" + "</div>" * 100_000, 513), ("<p " + "a=b " * 50_000 + ">hello", 50_000)],
)
def test_a_page_that_would_stop_a_parser_is_a_counted_drop(page: str, value: int) -> None:
    extracted(b"<p>Compiles the kernels, which takes longer than any page.")
    start = time.process_time()
    row = extracted(page.encode())
    assert (row["reason"], row["value"], row["failed"]) == ("too_complex", value, False)
    assert (row["extract_html_v2.excess"], row["extract_html_v2.chars"]) == (value, None)
    assert row["detail"]
    assert time.process_time() - start < 5


def test_a_page_of_many_megabytes_is_extracted() -> None:
    paragraph = "<p>The same river is never stepped into twice, he said.</p>\n"
    row = extracted(("<article>" + paragraph * 100_000 + "</article>").encode())
    assert row["text"].count("never stepped into twice") == 100_000


def test_it_is_a_stage() -> None:
    assert isinstance(stage_of(ExtractHtmlV2), Stage)
