"""The same recipe gives the same bytes with any number of workers, and on a second, real Beam runner."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.support import CHECKOUT, content, headrace

pytestmark = pytest.mark.integration


def test_two_workers_write_the_same_bytes(demo_recipe_file: Path, reference_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    headrace("run", demo_recipe_file, "--out", out, "--workers", "2", "--no-train")
    assert content(out) == content(reference_run)


def test_direct_runner_writes_the_same_bytes(demo_recipe_file: Path, reference_run: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = headrace("run", demo_recipe_file, "--out", out, "--no-train", "--", "--runner=DirectRunner")
    assert content(out) == content(reference_run)
    assert done.stdout.count("--workers N runs N processes") == 1


def test_direct_runner_with_two_workers_says_nothing_of_them(
    demo_recipe_file: Path, reference_run: Path, tmp_path: Path
) -> None:
    command = ("run", demo_recipe_file, "--out", tmp_path / "run", "--workers", "2", "--dry-run", "--json")
    done = headrace(*command, "--", "--runner=DirectRunner")
    assert json.loads(done.stdout)["workers"] == 2
    assert "note:" not in done.stderr


def test_prism_over_the_portability_api_writes_the_same_bytes(
    demo_recipe_file: Path, reference_run: Path, job_endpoint: str, worker_pool: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    headrace(
        "run",
        demo_recipe_file,
        "--out",
        out,
        "--no-train",
        "--",
        "--runner=PortableRunner",
        f"--job_endpoint={job_endpoint}",
        "--environment_type=EXTERNAL",
        f"--environment_config={worker_pool}",
    )
    assert content(out) == content(reference_run)


def test_a_finished_run_is_left_alone(demo_recipe_file: Path, reference_run: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in reference_run.rglob("*.arrow")}
    done = headrace("run", demo_recipe_file, "--out", reference_run, "--workers", "1", "--no-train")
    assert done.stdout.count("unchanged") == 20
    assert {path: path.stat().st_mtime_ns for path in reference_run.rglob("*.arrow")} == before


@pytest.fixture
def job_endpoint(prism: str) -> Iterator[str]:
    """A Prism job server, addressed as a Flink job server would be."""
    port = _free_port()
    with _server([prism, "--job_port", str(port), "--serve_http=false", "--log_level=warn"], port):
        yield f"localhost:{port}"


@pytest.fixture
def worker_pool() -> Iterator[str]:
    """A pool of Python workers that the job server starts its work on."""
    port = _free_port()
    command = [sys.executable, "-m", "apache_beam.runners.worker.worker_pool_main", "--service_port", str(port)]
    with _server(command, port):
        yield f"localhost:{port}"


class _server:  # noqa: N801 -- used as a function
    """A server process that listens on a port while the body runs."""

    def __init__(self, command: list[str], port: int) -> None:
        self._command, self._port = command, port

    def __enter__(self) -> None:
        # The pool starts its workers as plain "python": it must be the one that runs the tests.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path}
        self._process = subprocess.Popen(self._command, cwd=CHECKOUT, env=environment, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._process.poll() is None, f"{self._command[0]} ended with {self._process.returncode}"
            with socket.socket() as probe:
                if probe.connect_ex(("localhost", self._port)) == 0:
                    return
            time.sleep(0.1)
        raise AssertionError(f"{self._command[0]} does not listen on {self._port}")

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])
