"""Extraction against marked pages: F1, wanted and unwanted segments, structures, and pages per CPU-second.

    python tests/bench/bench_html.py [--rounds 3]

trafilatura is measured beside it where it is installed (``pip install 'headrace[trafilatura]'``), in the same run and
on the same pages. The forest has seen none of these pages. F1 is of words (``\\w+``, lower case), each as often as it
occurs; outside the 152 pages each character of Han, kana and Thai is a word.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import io
import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import zstandard
from resiliparse.parse.html import HTMLTree

from stages.html.charset import charset_of, decode
from stages.html.extraction import extract
from stages.html.guard import too_costly
from stages.html.rules import extract_by_rules
from stages.judges.extract_html import ExtractHtml

HTML: Final = Path(__file__).parents[2].parent / "shared" / "data" / "html"
STRUCTURES: Final = {"list items": "li", "table cells": "td, th", "code": "pre", "headings": "h1, h2, h3, h4, h5, h6"}
CHAPTERS: Final = "div.chapter, div.preface, div.sect1, div.section, div.appendix"
_UNSPACED: Final = r"\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff"
_WORDS: Final = re.compile(r"\w+")
_CHARACTERS: Final = re.compile(f"[{_UNSPACED}]|[^\\W{_UNSPACED}]+")

Extract = Callable[[str], str]


def rows(name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a shared file."""
    with (HTML / f"{name}.jsonl.zst").open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
            yield json.loads(line)


def overlap(text: str, gold: str, words: re.Pattern[str] = _WORDS) -> tuple[int, int, int]:
    """Return (common words, words of ``text``, words of ``gold``)."""
    ours, theirs = Counter(words.findall(text.lower())), Counter(words.findall(gold.lower()))
    return (ours & theirs).total(), ours.total(), theirs.total()


def f1(text: str, gold: str, words: re.Pattern[str] = _WORDS) -> float:
    """Return the F1 of words."""
    common, ours, theirs = overlap(text, gold, words)
    return 2 * common / (ours + theirs) if ours + theirs else 1.0


def whole_text(html: str) -> str:
    """Return the whole text of marked HTML."""
    return extract(html, main_content=False).text


def plain(text: str) -> str:
    """Return text without any white space, in which scripts and formats differ."""
    return re.sub(r"[\s|]+", "", text)


def trafilatura_extract() -> Extract | None:
    """Return trafilatura's extraction, None where it is not installed."""
    if importlib.util.find_spec("trafilatura") is None:
        return None
    from trafilatura import extract as extract_theirs

    return lambda html: extract_theirs(html, include_comments=False) or ""


def extractors() -> dict[str, Extract]:
    """Return what is compared, by name."""
    found = {
        "extract_html_v2": guarded(lambda html: extract(html).text),
        "v2, rules": guarded(extract_by_rules),
        "extract_html_v1": guarded(ExtractHtml().extract),
    }
    theirs = trafilatura_extract()
    return {**found, **({"trafilatura": theirs} if theirs else {})}


def guarded(call: Extract) -> Extract:
    """Return an extraction with the guard that a stage puts before it."""
    return lambda html: "" if too_costly(html) else call(html)


def marked_pages(call: Extract, rounds: int) -> dict[str, float]:
    """Measure the 152 pages of WCXB."""
    pages = list(rows("wcxb_gold"))
    call(pages[0]["html"])
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        texts = [call(page["html"]) for page in pages]
        seconds.append(time.process_time() - start)
    scores = [f1(text, page["main_content"]) for text, page in zip(texts, pages, strict=True)]
    return {
        "F1, 152 pages": float(np.mean(scores)),
        "under 0.1 of 152": sum(score < 0.1 for score in scores),
        "pages per CPU-second": len(pages) / statistics.median(seconds),
    }


def readability(call: Extract) -> dict[str, float]:
    """Measure the test pages of Readability.js."""
    scores = [f1(call(row["html"]), whole_text(row["expected_html"]), _CHARACTERS) for row in rows("readability_pages")]
    return {"F1, Readability": float(np.mean(scores))}


def segments(call: Extract) -> dict[str, float]:
    """Count the segments that trafilatura's own evaluation wants and does not want."""
    wanted = unwanted = 0
    for row in rows("trafilatura_multilingual_gold"):
        payload = base64.b64decode(row["html_b64"])
        text = plain(call(decode(payload, charset_of(payload, None, html=True))))
        wanted += sum(plain(segment) in text for segment in row["must_have"])
        unwanted += sum(plain(segment) in text for segment in row["must_not_have"])
    return {"wanted of 192": wanted, "unwanted of 191": unwanted}


def handbook(call: Extract) -> dict[str, float]:
    """Measure how much of the handbook's chapters is kept."""
    recalls = []
    for row in rows("debian_handbook"):
        common, _, theirs = overlap(call(row["html"]), row["structural_text"], _CHARACTERS)
        recalls.append(common / theirs)
    return {"recall, handbook": float(np.mean(recalls))}


def structures(call: Extract) -> dict[str, float]:
    """Return the share of list items, table cells, code and headings of marked text that are kept whole.

    Marked are the articles of Readability's pages, and what is inside the chapter of Debian's handbooks.
    """
    kept: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for html, marked in _marked():
        text = plain(call(html))
        for name, selector in STRUCTURES.items():
            for node in marked.query_selector_all(selector):
                part = plain(node.text if name == "code" else whole_text(node.html)).lstrip("-")
                if part:
                    seen[name] += 1
                    kept[name] += part in text
    shares = {f"{name} whole": kept[name] / seen[name] for name in STRUCTURES}
    return {**shares, "of so many": sum(seen.values()), "all whole": sum(kept.values()) / sum(seen.values())}


def _marked() -> Iterator[tuple[str, Any]]:
    for row in rows("readability_pages"):
        yield row["html"], HTMLTree.parse(row["expected_html"]).body
    for name in ("debian_handbook", "debian_install_guide"):
        for row in rows(name):
            chapter = HTMLTree.parse(row["html"]).body.query_selector(CHAPTERS)
            if chapter:
                yield row["html"], chapter


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name, call in extractors().items():
        results[name] = marked_pages(call, options.rounds)
        for measure in (readability, segments, handbook, structures):
            results[name] |= measure(call)
    names = list(results)
    print("| measure | " + " | ".join(names) + " |")
    print("|---|" + "--:|" * len(names))
    for measure_name in results[names[0]]:
        values = [results[name][measure_name] for name in names]
        print(f"| {measure_name} | " + " | ".join(f"{value:.3f}".rstrip("0").rstrip(".") for value in values) + " |")


if __name__ == "__main__":
    main()
