"""The host of a URL."""

from __future__ import annotations

import re
from typing import Final

_AUTHORITY: Final = re.compile(r"\s*(?:[A-Za-z][A-Za-z0-9+.-]*:)?[/\\]{2,}([^/\\?#]*)")
"""The authority of a hierarchical URL; browsers take any run of slashes and backslashes for the two of RFC 3986."""
_PORT: Final = re.compile(r":[0-9]*$")


def host_of(url: str) -> str:
    """Return the host of ``url``: lower case, without user, port or a trailing dot, an IPv6 address without brackets.

    It is empty if the URL has no authority (``dns:example.org``, ``urn:uuid:...``, a bare word). Never raises: crawls
    contain URLs that ``urllib.parse`` rejects, and no record may be lost over one.
    """
    match = _AUTHORITY.match(url)
    if match is None:
        return ""
    host = match[1].rpartition("@")[2].strip()
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return _PORT.sub("", host).rstrip(".").lower()
