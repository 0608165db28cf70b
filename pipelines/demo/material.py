"""Articles, documents, code and reference text, dealt out so that no paragraph appears in two of them."""

from __future__ import annotations

import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from math import log
from typing import Final

from pipelines.demo.generated import Article, notice
from pipelines.demo.stdlib_text import Module, modules, paragraphs, share_of, topics

REFERENCE_SHARE: Final = 0.25
WEB_SHARE: Final = 0.5
CODE_SHARE: Final = 0.22
MIN_WORDS: Final = 90
MAX_WORDS: Final = 280
REFERENCE_NOTICES: Final = 60
MAX_REPEATED: Final = 0.06
"""Less than half of what Gopher's rules allow of any repetition."""
MAX_CODE_CHARS: Final = 9_000
_WORD: Final = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Passage:
    """An original passage of ``passages.toml``."""

    language: str
    article: Article


@dataclass(frozen=True)
class Material:
    """What the corpus is written from.

    Attributes:
        web: articles for HTML pages.
        docs: (name, text) of docstring documents.
        code: (path, text) of pieces of source files.
        reference: lines of clean English, one paragraph each, disjoint from web and docs.
        vocabulary: words of the reference by ascending frequency, then by code point.
        notes: what this Python lacked.
    """

    web: list[Article]
    docs: list[tuple[str, str]]
    code: list[tuple[str, str]]
    reference: list[str]
    vocabulary: list[str]
    notes: list[str]


def passages() -> list[Passage]:
    """Return the original passages in other languages, in the order of the file."""
    text = resources.files("pipelines.demo").joinpath("passages.toml").read_text(encoding="utf-8")
    return [
        Passage(table["language"], Article(table["title"], tuple(table["text"].strip().split("\n\n"))))
        for table in tomllib.loads(text)["passage"]
    ]


def gather(seed: int) -> Material:
    """Deal out what comes with this Python, whole topics and modules, by a hash of their names and ``seed``."""
    found = Material([], [], [], [], [], [])
    seen: set[str] = set()
    subjects = topics()
    if not subjects:
        found.notes.append("This Python has no pydoc_data: the crawl is made from docstrings alone.")
    for name, text in subjects.items():
        fresh = _unseen(paragraphs(text), seen)
        if share_of(name, seed) < REFERENCE_SHARE:
            found.reference.extend(fresh)
        else:
            found.web.extend(_articles(_heading(text, name), fresh))
    for module in modules():
        _deal(module, found, seen, seed)
    rng = random.Random(seed)
    for _ in range(REFERENCE_NOTICES):
        found.reference.extend(notice(rng).text.split("\n\n"))
    counts = Counter(word for line in found.reference for word in _WORD.findall(line.lower()))
    found.vocabulary.extend(sorted(counts, key=lambda word: (counts[word], word)))
    return found


def _deal(module: Module, found: Material, seen: set[str], seed: int) -> None:
    share = share_of(module.path, seed)
    if share < REFERENCE_SHARE + WEB_SHARE:
        prose = _unseen((line for _, text in module.docstrings for line in paragraphs(text)), seen)
        if share < REFERENCE_SHARE:
            found.reference.extend(prose)
        else:
            found.web.extend(_articles(f"Working with {module.name}", prose))
    else:
        found.docs.extend(_documents(module))
    if share_of(f"code {module.path}", seed) < CODE_SHARE:
        found.code.extend(_pieces(module))


def _unseen(lines: Iterable[str], seen: set[str]) -> list[str]:
    fresh = []
    for line in lines:
        if line not in seen:
            seen.add(line)
            fresh.append(line)
    return fresh


def _heading(text: str, name: str) -> str:
    first = text.lstrip("\n").partition("\n")[0].replace('"', "").strip()
    return first if 3 < len(first) < 80 else f"About {name}"


def _articles(title: str, lines: Sequence[str]) -> Iterator[Article]:
    """Cut paragraphs into articles of ``MIN_WORDS`` to about ``MAX_WORDS`` words; a shorter remainder is left out."""
    part: list[str] = []
    number = 0
    for line in lines:
        part.append(line)
        if sum(len(paragraph.split()) for paragraph in part) >= MAX_WORDS:
            number += 1
            yield Article(title if number == 1 else f"{title}, part {number}", tuple(part))
            part = []
    if sum(len(paragraph.split()) for paragraph in part) >= MIN_WORDS:
        yield Article(title if number == 0 else f"{title}, part {number + 1}", tuple(part))


def _documents(module: Module) -> Iterator[tuple[str, str]]:
    """Yield a document for the module and each of its top-level names, with the docstrings of what is inside it."""
    grouped: dict[str, list[str]] = {}
    for name, text in module.docstrings:
        top = name.partition(".")[0]
        grouped.setdefault(top, []).append(text if name == top else f"{name}\n\n{text}")
    for top, texts in grouped.items():
        text = "\n\n".join(texts)
        if len(text.split()) >= 60:
            name = f"{module.name}.{top}" if top else module.name
            yield name, f"{name}\n\n{text}"


def _pieces(module: Module) -> Iterator[tuple[str, str]]:
    """Cut a source file before top-level definitions into pieces of about ``MAX_CODE_CHARS``."""
    blocks = re.split(r"\n(?=(?:def|class|@)\b)", module.source)
    piece = ""
    number = 0
    for block in [*blocks, None]:
        if piece and (block is None or len(piece) + len(block) > MAX_CODE_CHARS):
            if len(piece) >= 200:
                yield f"{module.path}#{number}", piece
            piece, number = "", number + 1
        piece += (block or "") + "\n"


def typical(articles: Sequence[Article], reference: Sequence[str]) -> list[Article]:
    """Return articles of middling length that repeat little and whose words are not the rarest to the reference.

    Pages that must survive are made from these: some of the others fall to a percentile cut or to Gopher's rules.
    """
    counts = Counter(word for line in reference for word in _WORD.findall(line.lower()))
    total = sum(counts.values())

    def surprise(article: Article) -> float:
        words = _WORD.findall(article.text.lower())
        return -sum(log((counts[word] + 1) / (total + 1)) for word in words) / len(words)

    ranked = sorted(articles, key=lambda article: (round(surprise(article), 6), article.title))
    common = ranked[: -(len(ranked) // 3)]
    return [article for article in common if article.words >= 110 and repeated_share(article) <= MAX_REPEATED]


def repeated_share(article: Article) -> float:
    """Return the larger of two shares: of word 5-grams that occurred before, and of words in the commonest 2-gram."""
    words = article.text.lower().split()
    fives, pairs = (Counter(zip(*(words[at:] for at in range(n)), strict=False)) for n in (5, 2))
    total = max(1, sum(fives.values()))
    return max(1 - len(fives) / total, 2 * max(pairs.values(), default=0) / max(1, len(words)))
