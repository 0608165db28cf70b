"""The digests by which a WARC record says what it holds."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from stages.readers.http import BodyError, dechunk
from stages.readers.reading import RIGHT_DIGEST, UNKNOWN_DIGEST, WRONG_DIGESTS

_ALGORITHMS: Final = {"md5": 16, "sha1": 20, "sha-1": 20, "sha256": 32, "sha-256": 32, "sha384": 48, "sha512": 64}
"""Algorithms by label, with the bytes of their digests."""

_WRONG_BLOCK, _WRONG_PAYLOAD = WRONG_DIGESTS


def digest_score(fields: Mapping[str, str], block: bytes, body: bytes) -> tuple[str, str]:
    """Compare a record with its digests.

    A payload digest is of the body as stored, or of what is left when chunked coding is undone: crawlers differ.

    Args:
        fields: the record's, by lower-case name.
        block: its whole block.
        body: what of the block is its payload.

    Returns:
        (the score: ``right``, ``unknown``, or which is wrong; empty without a digest, what to say of it).
    """
    of_block, of_payload = fields.get("warc-block-digest", ""), fields.get("warc-payload-digest", "")
    found = ""
    for said, wrong, contents in (
        (of_block, _WRONG_BLOCK, lambda: iter((block,))),
        (of_payload, _WRONG_PAYLOAD, lambda: _payloads(body)),
    ):
        if said:
            score = _compared(said, contents)
            if score is False:
                return wrong, f"{said[:100]} is not its digest"
            found = RIGHT_DIGEST if score and found != UNKNOWN_DIGEST else UNKNOWN_DIGEST
    return found, f"{(of_block or of_payload)[:100]} is of no known algorithm"


def _payloads(body: bytes) -> Iterable[bytes]:
    yield body
    try:
        plain = dechunk(body)
    except BodyError:
        return
    if plain != body:
        yield plain


def _compared(said: str, contents: Callable[[], Iterable[bytes]]) -> bool | None:
    """Return whether a digest is that of one of some contents; None if it cannot be read."""
    label, _, value = said.strip().partition(":")
    size = _ALGORITHMS.get(label.strip().lower())
    wanted = _decoded(value.strip(), size) if size else None
    if wanted is None:
        return None
    make: Any = getattr(hashlib, label.strip().lower().replace("-", ""))
    return any(make(content, usedforsecurity=False).digest() == wanted for content in contents())


def _decoded(value: str, size: int) -> bytes | None:
    """Return a digest that is written in base 16, 32 or 64; None if it is in none of these, or of another length."""
    padded = value.rstrip("=")
    for length, decode in (
        (2 * size, binascii.unhexlify),
        (-(-8 * size // 5), lambda text: base64.b32decode(text.upper() + "=" * (-len(text) % 8))),
        (-(-8 * size // 6), lambda text: base64.b64decode(text + "=" * (-len(text) % 4), validate=True)),
    ):
        if len(padded) == length:
            try:
                found: bytes = decode(padded)
            except ValueError:
                return None
            return found if len(found) == size else None
    return None
