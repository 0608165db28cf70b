"""An S3 server on the loopback, with a proxy before it that counts requests and makes them fail as networks do."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

BUCKET = "corpus-and-runs"
_HOP_BY_HOP = {"transfer-encoding", "content-length", "expect", "connection", "server", "date"}


@dataclass(frozen=True)
class Request:
    """A request as the client sent it."""

    method: str
    path: str


@dataclass(frozen=True)
class Fault:
    """What happens to a request: it waits, is answered with a status, or its answer is cut in the middle."""

    seconds: float = 0.0
    status: int = 0
    is_cut: bool = False


NO_FAULT = Fault()


class ObjectStore:
    """The server. ``fault`` decides on each request, given how many there were before; ``requests`` has them all."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.fault: Callable[[int, Request], Fault] = lambda number, request: NO_FAULT
        self._lock = threading.Lock()
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self._moto.start()
        self._behind = self._moto.get_host_and_port()
        self._proxy = _Proxy(("127.0.0.1", 0), _handler(self))
        self._proxy.daemon_threads = True
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()
        self.client = boto3.client(
            "s3",
            endpoint_url="http://{}:{}".format(*self._behind),
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        self.client.create_bucket(Bucket=BUCKET)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs in its environment to come through the proxy."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self._proxy.server_port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def note(self, request: Request) -> Fault:
        """Remember a request, and return what is to happen to it."""
        with self._lock:
            self.requests.append(request)
            return self.fault(len(self.requests) - 1, request)

    def forward(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, Any, bytes]:
        """Return (status, headers, body) of the server's answer."""
        with contextlib.closing(http.client.HTTPConnection(*self._behind)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()

    def put(self, key: str, data: bytes) -> None:
        """Put an object, past the proxy."""
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def objects(self, prefix: str) -> dict[str, bytes]:
        """Return all objects below a prefix by the rest of their keys, past the proxy."""
        found: dict[str, bytes] = {}
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix):
            for entry in page.get("Contents", ()):
                body = self.client.get_object(Bucket=BUCKET, Key=entry["Key"])["Body"].read()
                found[entry["Key"].removeprefix(prefix)] = body
        return found

    def close(self) -> None:
        """Stop both servers."""
        self._proxy.shutdown()
        self._proxy.server_close()
        self._moto.stop()


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Run an object store, with the environment of this process set to use it."""
    store = ObjectStore()
    before = {name: os.environ.get(name) for name in store.environment}
    os.environ.update(store.environment)
    try:
        yield store
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        store.close()


class _Proxy(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed in the middle of a request."""


def _handler(store: ObjectStore) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def handle_request(self) -> None:
            body = self._body()
            fault = store.note(Request(self.command, self.path))
            time.sleep(fault.seconds)
            if fault.status:
                self._answer(fault.status, [], b"", 0)
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_BY_HOP}
            status, given, data = store.forward(self.command, self.path, headers, body)
            size = len(data)
            if self.command == "HEAD":
                size = int(next((value for name, value in given if name.lower() == "content-length"), 0))
            if fault.is_cut:
                self.close_connection = True
                data = data[: len(data) // 2]
            self._answer(status, given, data, size)

        def _body(self) -> bytes:
            if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, size: int) -> None:
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            # A client that is killed does not wait for its answer.
            with contextlib.suppress(ConnectionError):
                self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request  # noqa: N815 -- as the base class calls them

    return Handler
