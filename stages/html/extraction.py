"""The main text of a page by the learnt forest: parse, cut into blocks, judge each, and write those that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from resiliparse.parse.html import HTMLTree

from stages.html.blocks import CHARS, ELEMENT, KIND, WORDS, Page
from stages.html.compose import Form, composed
from stages.html.elements import HEADING
from stages.html.features import features_of
from stages.html.forest import chosen, forest

LEAST: Final = 200_000
"""Blocks that are less likely main content, in millionths, are not kept."""
LEAST_OF_HEADING: Final = 50_000
"""Headings that are at least so likely are kept where the block after them is."""
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
    """Return the same for blocks of known likelihood, in millionths. A heading goes with the block after it."""
    kept = chosen(likelihood, np.maximum(page.blocks[:, WORDS], 1), LEAST)
    if len(kept) and page.blocks[kept, CHARS].sum() < FEW_CHARS:
        kept = likelihood >= np.sort(likelihood)[len(likelihood) // 2]
    is_heading = page.elements[page.blocks[:, ELEMENT], KIND] & HEADING != 0
    kept[:-1] |= is_heading[:-1] & kept[1:] & (likelihood[:-1] >= LEAST_OF_HEADING)
    return kept
