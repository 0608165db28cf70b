"""What the demo planted in its crawl, and what must become of each planted record."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

KEPT: Final = "kept"
SHINGLE_WORDS: Final = 5
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True)
class Item:
    """One planted record.

    Attributes:
        kind: what it is, such as ``exact_duplicate``; the check's summary is by kind.
        url: its address.
        expected: the verdicts that are right, at most two: ``kept``, ``STAGE/REASON``, or ``STAGE`` for any of its
            reasons. For a member of a duplicate group, what a removed member must show; one member stays.
        group: name of its duplicate group; empty for none.
        jaccard: exact Jaccard of word-5-gram sets with the other members of the group, by their URL.
        beside: for records that carry no URL of their own, one of a good record in the same file.
        records: number of such records in that file.
    """

    kind: str
    url: str
    expected: tuple[str, ...]
    group: str = ""
    jaccard: dict[str, float] = field(default_factory=dict)
    beside: str = ""
    records: int = 1


@dataclass(frozen=True)
class Planted:
    """Every planted record, and what the corpus was made from.

    Attributes:
        items: in the order of planting.
        notes: what this Python lacked, in sentences for the reader.
        text_bytes: UTF-8 bytes of text by kind of source (web, docs, code, reference).
    """

    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()
    text_bytes: dict[str, int] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Planted:
        """Read what ``write`` wrote."""
        table = json.loads(path.read_text(encoding="utf-8"))
        items = tuple(Item(**{**item, "expected": tuple(item["expected"])}) for item in table["items"])
        return cls(items, tuple(table["notes"]), table["text_bytes"])


def shingle_set(text: str, words: int = SHINGLE_WORDS) -> frozenset[tuple[str, ...]]:
    """Return the set of word n-grams of ``text``, lower-cased, the slow and plain way."""
    found = _WORD.findall(text.lower())
    return frozenset(tuple(found[at : at + words]) for at in range(max(1, len(found) - words + 1)))


def jaccard(left: str, right: str) -> float:
    """Return the exact Jaccard of two texts' word-5-gram sets."""
    one, other = shingle_set(left), shingle_set(right)
    return len(one & other) / len(one | other)
