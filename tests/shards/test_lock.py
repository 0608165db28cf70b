from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shards.errors import UserError
from shards.lock import LOCK_FILE, locked

_HOLD = """
import sys, time
from pathlib import Path
from shards.lock import locked
with locked(Path(sys.argv[1]), "there"):
    print("held", flush=True)
    time.sleep(60)
"""


def test_only_one_holds_it_and_the_other_is_told_where(tmp_path: Path) -> None:
    path = tmp_path / LOCK_FILE
    with (
        locked(path, "the run"),
        pytest.raises(
            UserError, match=rf"another process is working in this folder \(process {os.getpid()}\)"
        ) as caught,
        locked(path, "the run"),
    ):
        pytest.fail("held twice")
    assert (caught.value.place, caught.value.remedy) == ("the run", "Wait for it, or stop it")
    with locked(path, "the run"):
        assert path.is_file()


def test_no_folder_is_made_for_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"), locked(tmp_path / "run" / LOCK_FILE, "run"):
        pytest.fail("held")
    assert not (tmp_path / "run").exists()


def test_an_error_releases_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), locked(tmp_path / LOCK_FILE, ""):
        raise RuntimeError
    with locked(tmp_path / LOCK_FILE, ""):
        pass


def test_a_kill_of_its_holder_releases_it(tmp_path: Path) -> None:
    path = tmp_path / LOCK_FILE
    command = [sys.executable, "-c", _HOLD, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(UserError), locked(path, ""):
            pytest.fail("held twice")
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with locked(path, ""):
        pass
