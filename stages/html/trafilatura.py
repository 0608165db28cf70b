"""trafilatura's extraction, in a process of its own. It is an extra: ``pip install 'headrace[trafilatura]'``."""

from __future__ import annotations

import functools
import importlib.util
from typing import Final

from shards.errors import UserError
from stages.html.isolated import Isolated

MAX_CHARS: Final = 2_000_000
MAX_TAGS: Final = 50_000
"""Longer pages and those of more ``<`` are refused: trafilatura searches the tree again and again. The largest page of
1,075 real ones has 11,000 and takes it 4 s."""
SECONDS: Final = 120.0
MEMORY_BYTES: Final = 4 << 30


def too_large(html: str) -> tuple[float, str] | None:
    """Return why a page is not given to trafilatura, which could reach its limits; None if it is.

    Returns:
        (measure, what it is).
    """
    if len(html) > MAX_CHARS:
        return len(html), f"{len(html)} characters, the limit for trafilatura is {MAX_CHARS}"
    tags = html.count("<")
    return (tags, f"{tags} tags, the limit for trafilatura is {MAX_TAGS}") if tags > MAX_TAGS else None


def extract_with_trafilatura(html: str) -> str:
    """Return the main text of a decoded page, without readers' comments and white space at its ends.

    Raises:
        stages.html.isolated.IsolatedError: if it fails or takes more than it may.
    """
    return _isolated()(html).strip()


def require_installed() -> None:
    """Check that trafilatura is there.

    Raises:
        UserError: if it is not.
    """
    if importlib.util.find_spec("trafilatura") is None:
        raise UserError(
            "method = 'trafilatura' needs the package trafilatura, which is not installed",
            remedy="pip install 'headrace[trafilatura]', or use another method",
        )


@functools.cache
def _isolated() -> Isolated:
    return Isolated("stages.html.trafilatura:call", SECONDS, MEMORY_BYTES)


def call(html: str) -> str:
    """Return trafilatura's text of a page; for the child process."""
    from trafilatura import extract

    return extract(html, include_comments=False) or ""
