"""WARC and WET files as a crawler writes them: one gzip member per record, with ids and dates that never vary."""

from __future__ import annotations

import gzip
import uuid
from pathlib import Path
from typing import Final

CRAWL_DATE: Final = "2024-05-17T06:30:00Z"
_SOFTWARE: Final = b"software: headrace-demo\r\nformat: WARC File Format 1.1\r\n"


class WarcOut:
    """Collects the records of one WARC 1.1 file (ISO 28500:2017)."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._members: list[bytes] = []
        self._add("warcinfo", None, "application/warc-fields", _SOFTWARE, {"WARC-Filename": name})

    def response(
        self,
        url: str,
        body: bytes,
        media_type: str = "text/html; charset=utf-8",
        status: str = "200 OK",
        location: str = "",
    ) -> None:
        """Add the request, the response and the metadata record of one fetch."""
        host, _, path = url.partition("://")[2].partition("/")
        request = f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nAccept: text/html\r\n\r\n"
        self._add("request", url, "application/http; msgtype=request", request.encode(), {})
        lines = [f"HTTP/1.1 {status}", f"Content-Type: {media_type}", f"Content-Length: {len(body)}"]
        lines += [f"Location: {location}"] if location else []
        head = "\r\n".join(lines) + "\r\n\r\n"
        self._add("response", url, "application/http; msgtype=response", head.encode() + body, {})
        self._add("metadata", url, "application/warc-fields", b"fetchTimeMs: 40\r\n", {})

    def conversion(self, url: str, text: str) -> None:
        """Add the extracted text of a page, as WET files hold it."""
        self._add("conversion", url, "text/plain", text.encode(), {})

    def _add(self, kind: str, url: str | None, media_type: str, body: bytes, more: dict[str, str]) -> None:
        identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{self._name}#{len(self._members)}")
        fields = {
            "WARC-Type": kind,
            **({"WARC-Target-URI": url} if url else {}),
            "WARC-Date": CRAWL_DATE,
            "WARC-Record-ID": f"<urn:uuid:{identity}>",
            **more,
            "Content-Type": media_type,
            "Content-Length": str(len(body)),
        }
        head = "WARC/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
        self._members.append(gzip.compress(head.encode() + body + b"\r\n\r\n", 6, mtime=0))

    def write(self, folder: Path, *, cut_short: bool = False) -> Path:
        """Write the file, or all of it up to the middle of the second-to-last record, and return its path."""
        path = folder / self._name
        if cut_short:
            *whole, broken, _ = self._members
            path.write_bytes(b"".join(whole) + broken[: len(broken) // 2])
        else:
            path.write_bytes(b"".join(self._members))
        return path
