"""Groups of texts whose exact Jaccard is known: copies, edited copies, and relatives that are not duplicates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipelines.demo.generated import Article
from pipelines.demo.planted import SHINGLE_WORDS, jaccard

MIN_DUPLICATE: Final = 0.9
"""Far enough above the recipe's 0.8 that MinHash proposes the pair, but for about 1 in 30,000, whatever the text is."""
MIN_RELATED: Final = 0.35
MAX_RELATED: Final = 0.6
"""Far enough below 0.8 that no verification may take it for a duplicate."""

_ADDED: Final = ("Read the full story here.", "Posted by the editors.", "Last checked in May.")
_SWAPS: Final = {
    "is": "was", "are": "were", "can": "may", "may": "can", "must": "should", "should": "must", "this": "that",
    "used": "needed", "when": "whenever", "if": "where", "also": "likewise", "all": "most", "any": "some",
    "returns": "gives", "return": "give", "method": "routine", "value": "result", "an": "one", "and": "or",
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Texts that belong together.

    Attributes:
        articles: n texts; the first is the original.
        jaccard: n x n exact Jaccard of their word-5-gram sets.
    """

    articles: tuple[Article, ...]
    jaccard: tuple[tuple[float, ...], ...]


def exact_group(article: Article, copies: int) -> Group:
    """Return an article and copies of it."""
    return _group([article] * (copies + 1))


def edited_group(article: Article, copies: int, rng: random.Random) -> Group:
    """Return an article and lightly edited copies, any two of them at a Jaccard of at least ``MIN_DUPLICATE``."""
    edits = max(1, round(0.04 * article.words / SHINGLE_WORDS))
    while edits >= 0:
        added = rng.sample(_ADDED, copies)
        group = _group([article, *(_edited(article, edits, line, rng) for line in added)])
        if min(min(row) for row in group.jaccard) >= MIN_DUPLICATE:
            return group
        edits -= 1
    raise AssertionError(f"no light edit of {article.title!r} keeps a Jaccard of {MIN_DUPLICATE}")


def distinct_pair(article: Article, other: Article) -> Group:
    """Return an article and one that shares its beginning and continues like another: related, but not a duplicate."""
    first, second = _sentences(article), _sentences(other)
    for share in (0.7, 0.65, 0.75, 0.6, 0.8, 0.55, 0.85, 0.5):
        cut = max(1, round(share * len(first)))
        joined = _Flow(first[:cut] + second[: max(1, len(first) - cut)])
        group = _group([article, Article(f"{article.title}, revised", joined.paragraphs())])
        if MIN_RELATED <= group.jaccard[0][1] <= MAX_RELATED:
            return group
    raise AssertionError(f"no mixture of {article.title!r} with {other.title!r} has a Jaccard in the wanted range")


def _group(articles: Sequence[Article]) -> Group:
    table = tuple(tuple(jaccard(one.text, other.text) for other in articles) for one in articles)
    return Group(tuple(articles), table)


def _edited(article: Article, edits: int, added: str, rng: random.Random) -> Article:
    """Swap up to ``edits`` words and add a line, as a site that republishes an article does."""
    words = [paragraph.split(" ") for paragraph in article.paragraphs]
    places = [(p, w) for p, paragraph in enumerate(words) for w, word in enumerate(paragraph) if word in _SWAPS]
    for p, w in rng.sample(places, min(edits, len(places))):
        words[p][w] = _SWAPS[words[p][w]]
    return Article(article.title, (*(" ".join(paragraph) for paragraph in words), added))


def _sentences(article: Article) -> list[str]:
    found = []
    for paragraph in article.paragraphs:
        parts = paragraph.replace(". ", ".\n").split("\n")
        found += [part for part in parts if part]
    return found


@dataclass(frozen=True)
class _Flow:
    sentences: Sequence[str]

    def paragraphs(self) -> tuple[str, ...]:
        return tuple(" ".join(self.sentences[at : at + 4]) for at in range(0, len(self.sentences), 4))
