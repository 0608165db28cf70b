"""Hosts and paths of URLs as blacklists compare them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

MAX_HOST_CHARS: Final = 253
"""The longest name in the DNS (RFC 1035); of a longer host, only the end can be on a list."""

MAX_URL_CHARS: Final = 16_384
"""Characters of a URL that are compared; no listed URL is that long."""

_IPV4: Final = re.compile(r"[0-9]+(?:\.[0-9]+){3}")
_AFTER_HOST: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]{2,}[^/\\?#]*([^#]*)")
_MIRROR_LABEL: Final = re.compile(r"(?:www|web|ftp)[0-9]*\.(?=[^.]+\.)")
_PERCENT: Final = re.compile(r"%([0-9a-f]{2})")
_UNRESERVED: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-._~")


def ascii_host(host: str) -> str:
    """Return ``host`` (lower case) as the DNS knows it: no leading or trailing dots, labels in ASCII where possible."""
    host = host.strip(".")
    if not host.isascii():
        # Label by label, because one that IDNA rejects must not keep the others from being found.
        labels = re.split("[.\u3002\uff0e\uff61]", host)
        host = ".".join(_ascii_label(label) for label in labels)
    if len(host) > MAX_HOST_CHARS:
        host = host[-MAX_HOST_CHARS:].partition(".")[2]
    return host


def _ascii_label(label: str) -> str:
    if label.isascii() or len(label) > 63:
        return label
    try:
        return label.encode("idna").decode("ascii").lower()
    except UnicodeError:
        return label


def is_address(host: str) -> bool:
    """Return whether ``host`` is an IP address, which has no parents."""
    return ":" in host or _IPV4.fullmatch(host) is not None


def path_of(url: str) -> str:
    """Return path and query of ``url``, normalised: lower case, only reserved characters escaped, slashes forward."""
    match = _AFTER_HOST.match(url)
    return _normal_path(match[1]) if match else ""


def _normal_path(path: str) -> str:
    path = path.strip().lower().replace("\\", "/")
    if "%" in path:
        path = _PERCENT.sub(_unescaped, path)
    if not path.isascii():
        path = quote(path, safe="".join(map(chr, range(0x21, 0x7F))), errors="replace").lower()
    return path


def _unescaped(escape: re.Match[str]) -> str:
    char = chr(int(escape[1], 16))
    return char.lower() if char.lower() in _UNRESERVED else escape[0]


def without_mirror(host: str) -> str:
    """Return ``host`` without a first label such as ``www2``."""
    match = _MIRROR_LABEL.match(host)
    return host[match.end() :] if match else host
