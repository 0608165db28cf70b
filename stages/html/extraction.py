"""The main text of a page by the learnt forest: parse, cut into blocks, judge each, and write those that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import CHARS, ELEMENT, WORDS, Page
from stages.html.compose import Form, composed
from stages.html.features import features_of
from stages.html.forest import chosen, forest
from stages.html.structure import CODE, LEVEL, TABLE, TOP_LIST, structure_of

LEAST: Final = 200_000
"""Blocks that are less likely main content, in millionths, are not kept."""
LEAST_OF_HEADING: Final = 50_000
"""Headings that are at least so likely are kept where the block after them is."""
LEAST_OF_GROUP: Final = 100_000
"""Tables and lists that are at least so likely are kept where the blocks on both sides are."""
FEW_CHARS: Final = 100
"""If fewer characters would be kept, the likelier half of the blocks is."""


@dataclass(frozen=True)
class Extracted:
    """The text of a page.

    Attributes:
        text: the text, without white space at its ends.
        share: the share of the page's characters, as far as they are shown, that is in it; NaN for a page without any.
    """

    text: str
    share: float


def page_of(html: str) -> Page:
    """Return the blocks of a decoded page.

    Raises:
        resiliparse.parse.html.HTMLParserException: if the parser fails.
    """
    return Page(str(HTMLTree.parse(html)))


def extract(html: str, form: Form = "plain", *, main_content: bool = True) -> Extracted:
    """Return the text of a decoded page.

    Args:
        html: the page; one that ``guard.too_complex`` refuses may take minutes or gigabytes.
        form: how to write it.
        main_content: leave out navigation, headers, footers and advertisements.

    Raises:
        resiliparse.parse.html.HTMLParserException: if the parser fails.
    """
    page = page_of(html)
    kept = kept_of(page) if main_content else np.ones(len(page.blocks), np.bool_)
    chars = page.blocks[:, CHARS]
    whole = int(chars.sum())
    return Extracted(composed(page, kept, form).strip(), int(chars[kept].sum()) / whole if whole else np.nan)


def kept_of(page: Page) -> npt.NDArray[np.bool_]:
    """Return which blocks of a page are main content, of shape (blocks,)."""
    return kept_from(page, forest().likelihoods(features_of(page)))


def kept_from(page: Page, likelihood: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return the same for blocks of known likelihood, in millionths.

    A table of data and a list stay or go whole.
    """
    words = np.maximum(page.blocks[:, WORDS], 1)
    places = structure_of(page)[page.blocks[:, ELEMENT]]
    for column in (TABLE, TOP_LIST):
        likelihood = _shared(likelihood, words, places[:, column])
    kept = chosen(likelihood, words, LEAST)
    if len(kept) and page.blocks[kept, CHARS].sum() < FEW_CHARS:
        kept = likelihood >= np.sort(likelihood)[len(likelihood) // 2]
    _take_with_neighbours(kept, likelihood, places)
    return kept


def _take_with_neighbours(
    kept: npt.NDArray[np.bool_], likelihood: npt.NDArray[np.int64], places: npt.NDArray[np.int64]
) -> None:
    """Keep headings before what is kept, tables and lists between, and code beside it: a text is torn without them."""
    heading = (places[:, LEVEL] > 0) & (likelihood >= LEAST_OF_HEADING)
    kept[:-1] |= heading[:-1] & kept[1:]
    code = places[:, CODE] > 0
    for _ in range(3):
        beside = np.zeros(len(kept), np.bool_)
        beside[1:] |= kept[:-1]
        beside[:-1] |= kept[1:]
        kept |= code & beside
    for column in (TABLE, TOP_LIST):
        group = places[:, column]
        starts = np.flatnonzero(np.diff(group, prepend=-1) != 0)
        ends = np.flatnonzero(np.diff(group, append=-1) != 0) + 1
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            likely = group[start] and likelihood[start] >= LEAST_OF_GROUP
            if likely and start > 0 and end < len(kept) and kept[start - 1] and kept[end]:
                kept[start:end] = True


def _shared(
    likelihood: npt.NDArray[np.int64], words: npt.NDArray[np.int64], group: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the likelihoods, in each group that of its average word; group 0 is none."""
    grouped = group > 0
    if not grouped.any():
        return likelihood
    rows, at = np.unique(group, return_inverse=True)
    whole, of_words = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    np.add.at(whole, at, likelihood * words)
    np.add.at(of_words, at, words)
    return np.where(grouped, (whole // of_words)[at], likelihood)
