"""Media types as browsers find them: by the Fetch standard's reading of Content-Type, else by the first bytes.

What counts is the last valid value of all that a server sent, so ``text/html,`` and ``*/*, text/html`` are HTML. A
value that is no media type says nothing, and neither do those that the MIME Sniffing standard calls unknown.
"""

from __future__ import annotations

import functools
import re
from typing import Final

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_ESSENCE: Final = re.compile(rf"[ \t\r\n]*({_TOKEN}/{_TOKEN})[ \t\r\n]*(?=;|$)")
_VALUE: Final = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*(?:"|\\?\Z))*', re.DOTALL)
_UNKNOWN: Final = frozenset({"unknown/unknown", "application/unknown", "*/*"})

BINARY: Final = {
    b"%PDF-": "application/pdf",
    b"\x89PNG": "image/png",
    b"GIF8": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"PK\x03\x04": "application/zip",
    b"\x1f\x8b\x08": "application/gzip",
    b"RIFF": "application/octet-stream",
    b"wOFF": "font/woff",
    b"OTTO": "font/otf",
}
"""What servers send under a Content-Type of text, by its first bytes."""

_HTML: Final = (b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<!--", b"<meta", b"<div", b"<p")
_XML: Final = (b"<?xml", b"<svg", b"<rss")


_REMEMBERED_CHARS: Final = 100


def content_type_of(header: str) -> str:
    """Return the media type with its parameters that a Content-Type header gives; empty where it gives none.

    A charset goes on to a later value of the same type that names none (Fetch, "extract a MIME type").

    Args:
        header: the values of all its occurrences, joined by commas.
    """
    # A crawl has few different ones, but for the odd long one.
    return _remembered(header) if len(header) <= _REMEMBERED_CHARS else _content_type_of(header)


def _content_type_of(header: str) -> str:
    found, essence = "", ""
    for value in values_of(header):
        match = _ESSENCE.match(value)
        if match is None or (name := match[1].lower()) == "*/*":
            continue
        carries = name == essence and "charset=" in found.lower() and "charset=" not in value.lower()
        found, essence = (found if carries else value.strip(" \t\r\n")), name
    return found


_remembered: Final = functools.lru_cache(maxsize=1024)(_content_type_of)


def values_of(header: str) -> list[str]:
    """Return the values of a header at its commas, those within quotes aside."""
    found, at = [], 0
    while at <= len(header):
        match = _VALUE.match(header, at)
        end = match.end() if match else len(header)
        found.append(header[at:end])
        at = max(end, at) + 1
    return found


def media_of(content_type: str) -> str:
    """Return the media type of one Content-Type in lower case, without parameters; empty if it is unknown or none."""
    match = _ESSENCE.match(content_type)
    media = match[1].lower() if match else ""
    return "" if media in _UNKNOWN else media


def sniff(body: bytes) -> str:
    """Return the media type of a body that came without one: HTML by its first bytes, text if nothing is binary."""
    start = body[:1024].removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if start.startswith(_HTML):
        return "text/html"
    if start.startswith(_XML):
        return "text/xml"
    is_binary = any(byte < 9 or 14 <= byte < 27 for byte in body[:1024])
    return "application/octet-stream" if is_binary else "text/plain"


def binary_media(body: bytes) -> str:
    """Return the media type of a body that begins as a format of ``BINARY`` does, empty for any other."""
    return next((media for start, media in BINARY.items() if body.startswith(start)), "")
