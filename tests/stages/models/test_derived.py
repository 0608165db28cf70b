from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stages.models import derived as module
from stages.models.derived import derived, digest_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"headrace-{os.getuid()}"


def opened(path: Path) -> str:
    content = path.read_text()
    if not content.endswith("."):
        raise ValueError(content)
    return content


def test_a_file_is_made_once_and_again_when_it_is_damaged(folder: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("whole.")

    assert [derived("one", make, opened) for _ in range(3)] == ["whole."] * 3
    assert len(made) == 1
    (folder / "one").write_text("who")
    assert derived("one", make, opened) == "whole."
    assert len(made) == 2
    assert {path.name for path in folder.iterdir()} == {"one", "one.lock"}


def test_what_cannot_be_made_leaves_nothing(folder: Path) -> None:
    def broken(path: Path) -> None:
        path.write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        derived("one", broken, opened)
    assert {path.name for path in folder.iterdir()} == {"one.lock"}


def test_processes_that_need_it_at_once_make_it_once(tmp_path: Path) -> None:
    code = """
import os, sys, tempfile, time
from pathlib import Path
tempfile.tempdir = sys.argv[1]
from stages.models.derived import derived
def make(path):
    time.sleep(0.5)
    Path(sys.argv[1], f"made{os.getpid()}").touch()
    path.write_text("whole.")
print(derived("one", make, Path.read_text))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["whole.\n"] * 3
    assert len(list(tmp_path.glob("made*"))) == 1


def test_a_digest_follows_content_order_and_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a")
    two.write_text("b")
    files = [str(one), str(two)]
    digests = [digest_of(files), digest_of(files[::-1]), digest_of(files, "x"), digest_of(files, "x", "y")]
    assert len(set(digests)) == 4
    monkeypatch.setattr(module, "hash_file", lambda path: pytest.fail("hashed again"))
    assert digest_of(files) == digests[0]
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stat = one.stat()
    one.write_text("c")
    os.utime(one, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    # Of the same size, and with its time put back.
    assert digest_of(files) != digests[0]
