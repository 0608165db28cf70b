"""The charset of a body, by byte order mark, declared label, HTML prescan, or detection; and decoding it.

The order is that of the WHATWG Encoding and HTML standards, in which a byte order mark overrides the HTTP header.
Labels are looked up in the standard's own list, so that a page cannot name a Python codec such as ``unicode_escape``.
"""

from __future__ import annotations

import re
from typing import Final

from resiliparse.parse.encoding import map_encoding_to_html5

from stages.html.detection import detect
from stages.html.tags import ATTRIBUTES, TAGS

PRESCAN_BYTES: Final = 16 << 10
"""The standard requires 1,024. Browsers read on if that ends inside a comment or script, and crawls have such pages."""

# Python's codecs of these names decode less than browsers do.
_WIDER: Final = {
    "gbk": "gb18030",
    "gb2312": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
    "iso8859-11": "cp874",
    "iso8859-8-i": "iso8859-8",
}
# Labels that pages use unambiguously, and that the standard's list lacks, or forbids because of what scripts could do.
_ALIASES: Final = {
    "cp855": "cp855",
    "ibm855": "cp855",
    "hz-gb-2312": "hz",
    "iso-2022-kr": "iso2022_kr",
    "johab": "johab",
    "maccyrillic": "mac-cyrillic",
    "utf-32": "utf-32",
    "utf-32be": "utf-32-be",
    "utf-32le": "utf-32-le",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-mac-ukrainian": "mac-cyrillic",
    "cp949": "cp949",
    "ms949": "cp949",
    "cp932": "cp932",
    "ms932": "cp932",
    "cp936": "gb18030",
    "utf8mb4": "utf-8",
    "utf_8": "utf-8",
    "x-user-defined": "cp1252",
}
_WINDOWS: Final = re.compile(r"(?:win|windows|cp|ms|x-cp)[-_ ]?(125[0-8])")
_BOMS: Final = (
    (b"\xff\xfe\0\0", "utf-32-le"),
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xff\xfe", "utf-16-le"),
)
_LABEL: Final = re.compile(r"charset\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"';,][^\s;,]*))", re.IGNORECASE | re.ASCII)


def codec_of(label: str | None) -> str | None:
    """Return the Python codec for a charset label as used on the web, None if there is no such charset."""
    if not label:
        return None
    name = label.strip(" \t\r\n\f").lower()
    found = _ALIASES.get(name)
    if found is None and (windows := _WINDOWS.fullmatch(name)):
        found = f"cp{windows[1]}"
    found = found or map_encoding_to_html5(name, fallback_utf8=False)
    return _WIDER.get(found, found) if found else None


def declared(content_type: str | None) -> str | None:
    """Return the codec that a Content-Type names."""
    match = _LABEL.search(content_type or "")
    return codec_of(match[1] or match[2] or match[3]) if match else None


def byte_order_mark(body: bytes) -> str | None:
    """Return the codec that a byte order mark stands for, None if there is no mark."""
    return next((codec for mark, codec in _BOMS if body.startswith(mark)), None)


def prescan(body: bytes) -> str | None:
    """Return the codec that a page names in its own ``meta``, by the standard's prescan of its first bytes.

    UTF-16 is taken for UTF-8: that the bytes of the ``meta`` could be read shows that they are not UTF-16.
    """
    for tag in TAGS.finditer(body[:PRESCAN_BYTES].decode("latin-1")):
        if tag[1] and tag[1].lower() == "meta" and tag[0].endswith(">") and (codec := _meta(tag[2])):
            return "utf-8" if codec.startswith("utf-16") else codec
    return None


def _meta(attributes: str) -> str | None:
    values: dict[str, str] = {}
    for name, double, single, bare in ATTRIBUTES.findall(attributes):
        values.setdefault(name.lower(), double or single or bare)
    if "charset" in values:
        return codec_of(values["charset"])
    if values.get("http-equiv", "").lower() == "content-type":
        return declared(values.get("content"))
    return None


def charset_of(body: bytes, content_type: str | None, *, html: bool) -> str:
    """Return the codec to decode ``body`` with, from the most reliable source that names one."""
    codec = byte_order_mark(body) or declared(content_type) or (prescan(body) if html else None)
    if codec is None:
        found = detect(body)
        # As browsers would: ISO 8859-9 is decoded as windows-1254. The web has no label for some that are detected.
        codec = codec_of(found) or found
    return codec


def decode(body: bytes, codec: str) -> str:
    """Decode ``body``, with U+FFFD for what cannot be decoded, and without the byte order mark."""
    return body.decode(codec, "replace").removeprefix("\ufeff")
