"""Names of input files: the one spelling under which the plan keeps each, and when two spellings are one file."""

from __future__ import annotations

import posixpath
import re
from typing import Final
from urllib.parse import quote, unquote

DECODED: Final = frozenset({"s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss"})
"""Schemes whose URIs pyarrow percent-decodes. Other handlers get what follows the scheme as it is written."""

_SLASHES: Final = re.compile(r"/{2,}")
# What RFC 3986 allows in a path besides letters, digits and "-._~".
_PATH_CHARS: Final = "/!$&'()*+,;=:@"
_UNSHOWABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def is_uri(path: str) -> bool:
    """Return whether a path is a URI, as opposed to a local path."""
    return "://" in path


def is_unshowable(path: str) -> bool:
    """Return whether a name holds control characters, or bytes that are not UTF-8: no table or report could show it."""
    return _UNSHOWABLE.search(path) is not None


def spelled(path: str) -> str:
    """Return a path in the one spelling under which the plan keeps it: local paths without ``.`` and doubled slashes.

    A ``file://`` URI becomes a local path. Of other URIs only those are respelled that pyarrow itself decodes.
    """
    if not is_uri(path):
        return posixpath.normpath(path)
    scheme, _, rest = path.partition("://")
    scheme = scheme.lower()
    if scheme == "file":
        return posixpath.normpath(unquote(rest, errors="surrogateescape"))
    if scheme not in DECODED:
        return path
    rest, _, query = rest.partition("#")[0].partition("?")
    authority, _, key = rest.partition("/")
    tail = f"?{query}" if query else ""
    return f"{scheme}://{authority}/{encoded(_collapsed(unquote(key, errors='surrogateescape')))}{tail}"


def encoded(key: str) -> str:
    """Return the path of an object as it stands in a URI that pyarrow decodes."""
    return quote(key, safe=_PATH_CHARS, errors="surrogateescape")


def key_of(path: str, base: str) -> str:
    """Return what two spellings of one place have in common: a path relative to ``base`` below it, absolute elsewhere.

    Links are not followed: see ``pipelines.planning.links``.
    """
    path = spelled(path)
    if is_uri(path):
        scheme, _, rest = path.partition("://")
        # Inside a path a doubled slash may name another object: only pyarrow's own file systems have none.
        return path if scheme in DECODED else f"{scheme.lower()}://{rest.strip('/')}"
    if not path.startswith(("/", "..")):
        return path
    return below(posixpath.normpath(posixpath.join(base, path)), base)


def below(path: str, base: str) -> str:
    """Return an absolute path relative to ``base`` if it is below it, else as it is."""
    return path.removeprefix(base.rstrip("/") + "/")


def file_name(path: str) -> str:
    """Return a file's name without its folder, the same wherever the file lies."""
    if path.partition("://")[0] not in DECODED:
        return path.rpartition("/")[2]
    return unquote(path.partition("?")[0].rpartition("/")[2], errors="surrogateescape")


def _collapsed(path: str) -> str:
    return _SLASHES.sub("/", path).strip("/")


def sibling_and_key(uri: str) -> tuple[str, str]:
    """Return (URI of an object ``x`` in the same root, path of ``uri`` below it): a million URIs have few roots."""
    scheme, _, rest = uri.partition("://")
    if scheme not in DECODED:
        return f"{scheme}://x", rest
    rest, _, query = rest.partition("?")
    authority, _, key = rest.partition("/")
    return f"{scheme}://{authority}/x{'?' if query else ''}{query}", unquote(key, errors="surrogateescape")
