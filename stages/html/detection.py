"""The charset of bytes that name none: by what is valid, then by the statistics of letters.

Bytes that are UTF-8 are hardly ever anything else, and zero bytes in every second or fourth place are UTF-16 or UTF-32.
What is left goes to resiliparse's detector (uchardet), whose names are taken as they are: its own map to the labels of
the web turns every charset outside that list, such as ``cp949``, into UTF-8.
"""

from __future__ import annotations

import codecs
from typing import Final

import numpy as np
from resiliparse.parse.encoding import detect_encoding

UNKNOWN: Final = "cp1252"
"""What browsers take a body for of which nothing is known."""

_ESCAPES: Final = (b"\x1b$", b"\x1b(", b"~{")
"""ISO-2022 and HZ write every text in ASCII bytes, so theirs is valid UTF-8 as well."""

_MOST_DAMAGE: Final = 1 / 20
"""Bytes that are not UTF-8, for each character beyond ASCII that is, up to which a body is UTF-8 with damage. Text in
another charset has more of these than of those."""

_SAMPLE_BYTES: Final = 16 << 10
_LEAST_ZEROS: Final = 0.02
"""Share of zero bytes, from which a body may be UTF-16: its spaces, line ends and digits have one each."""
_FEWEST_ZEROS: Final = 4
_MOST_STRAY: Final = 0.02
"""Share of these zero bytes that may lie elsewhere than the charset puts them."""

_WIDE: Final = {"utf-32-le": (4, (2, 3)), "utf-32-be": (4, (0, 1)), "utf-16-le": (2, (1,)), "utf-16-be": (2, (0,))}
"""Width of a unit, and the places in it that are zero in text."""

_LEAST_HANGUL: Final = 0.9
"""The detector does not know Johab, whose bytes look like those of other charsets until they are decoded."""

_RENAMED: Final = {
    "x-mac-cyrillic": "mac-cyrillic",
    "mac-centraleurope": "mac-latin2",
    "uhc": "cp949",
    "euc-kr": "cp949",
}


def detect(body: bytes) -> str:
    """Return the Python codec that ``body`` is most probably written in; ``UNKNOWN`` where there is no telling."""
    if (wide := _wide(body)) is not None:
        return wide
    if any(escape in body for escape in _ESCAPES):
        found = _codec(detect_encoding(body, html5_compatible=False))
        if found.startswith(("iso2022", "hz")) and _decodes(body, found):
            return found
    if body.isascii():
        return UNKNOWN
    if is_utf8(body):
        return "utf-8"
    found = _codec(detect_encoding(body, html5_compatible=False))
    if found in ("utf-8", "ascii", UNKNOWN):
        return "johab" if _is_hangul(body, "johab") else UNKNOWN
    return found


def is_utf8(body: bytes) -> bool:
    """Return whether ``body`` is UTF-8, but for a character that is cut at its end, or for little damage."""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and not body[: error.start].isascii():
            return True
    else:
        return True
    text = body.decode("utf-8", "replace")
    replaced = text.count("\ufffd")
    damage = replaced - body.count(b"\xef\xbf\xbd")
    beyond_ascii = len(text) - len(text.encode("ascii", "ignore")) - replaced
    return damage <= _MOST_DAMAGE * beyond_ascii


def _wide(body: bytes) -> str | None:
    """Return the charset of two or four bytes a unit that the zero bytes point to; None if they point to none."""
    sample = np.frombuffer(body[: min(len(body), _SAMPLE_BYTES) & ~3], np.uint8)
    zeros = int(np.count_nonzero(sample == 0))
    if zeros < max(_FEWEST_ZEROS, _LEAST_ZEROS * len(sample)):
        return None
    for codec, (width, places) in _WIDE.items():
        at = sample.reshape(-1, width) == 0
        if width == 4 and not all(at[:, place].mean() > 0.9 for place in places):
            continue
        inside = int(at[:, places].sum()) if width == 2 else zeros
        if zeros - inside <= _MOST_STRAY * zeros and _decodes(body, codec):
            return codec
    return None


def _decodes(body: bytes, codec: str) -> bool:
    try:
        codecs.getincrementaldecoder(codec)("strict").decode(body)
    except UnicodeDecodeError:
        return False
    return True


def _is_hangul(body: bytes, codec: str) -> bool:
    """Return whether ``body`` decodes to Korean: nearly all that is beyond ASCII are syllables."""
    if not _decodes(body, codec):
        return False
    beyond = [char for char in body[:_SAMPLE_BYTES].decode(codec, "ignore") if char > "\x7f"]
    return len(beyond) > 3 and sum("\uac00" <= char <= "\ud7a3" for char in beyond) > _LEAST_HANGUL * len(beyond)


def _codec(name: str | None) -> str:
    """Return the Python codec of a detector's name, ``UNKNOWN`` where it has none."""
    name = (name or UNKNOWN).lower()
    try:
        return codecs.lookup(_RENAMED.get(name, name)).name
    except LookupError:
        return UNKNOWN
