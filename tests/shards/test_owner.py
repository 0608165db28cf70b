from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest

from shards import owner
from shards.errors import UserError
from shards.owner import MARK, owned
from shards.store import Store


@pytest.fixture(params=["a condition", "no condition"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A remote store, whose client knows conditional puts, or does not, as Arrow's own do not."""
    if request.param == "no condition":
        monkeypatch.setattr(Store, "create", lambda self, path, data: None)
    return Store(f"memory://headrace-{uuid.uuid4().hex}/run")


def marks(store: Store) -> list[str]:
    return [name for name in store.list(".") if name.startswith(MARK)]


def left_by(store: Store, **who: object) -> str:
    """Leave the mark of another process."""
    name = f"{MARK}000003-0123abcd.json"
    store.write_bytes(name, json.dumps({"host": "elsewhere", "machine": "other", "pid": 12} | who).encode())
    return name


def test_only_one_holds_it_and_the_other_is_told_who_and_what_to_do(store: Store) -> None:
    with owned(store):
        (mark,) = marks(store)
        with pytest.raises(
            UserError, match=rf"another process is working in this folder \(process {os.getpid()} on "
        ) as caught:
            owned(store).__enter__()
        assert "last heard of" in caught.value.what
        assert caught.value.place == store.root
        assert (
            caught.value.remedy
            == "Wait for it, or stop it. If it is no more, run again 180 s after it was last heard of"
        )
        assert marks(store) == [mark]
    assert marks(store) == []
    with owned(store):
        pass


def test_an_error_releases_it(store: Store) -> None:
    with pytest.raises(RuntimeError), owned(store):
        raise RuntimeError
    assert marks(store) == []


def test_a_mark_of_another_machine_counts_until_it_is_old(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    left_by(store)
    with pytest.raises(UserError, match="process 12 on elsewhere, last heard of 0 s ago"):
        owned(store, stale_seconds=60).__enter__()
    time.sleep(0.06)
    with owned(store, stale_seconds=0.05):
        (mark,) = marks(store)
        assert mark.startswith(f"{MARK}000004")
    assert "took over" in caplog.text
    assert "process 12 on elsewhere" in caplog.text


def test_a_process_of_this_machine_that_has_ended_counts_for_nothing(store: Store) -> None:
    script = "import json; from shards.owner import _myself; print(json.dumps(_myself()))"
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2]
    )
    left_by(store, **json.loads(said.stdout))
    with owned(store):
        assert len(marks(store)) == 1


def test_a_number_that_another_process_has_now_is_not_its(store: Store) -> None:
    left_by(store, **{**owner._myself(), "began": "1"})
    with owned(store):
        assert len(marks(store)) == 1


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}'])
def test_a_damaged_mark_is_somebodys_until_it_is_old(store: Store, content: bytes) -> None:
    store.write_bytes(left_by(store), content)
    with pytest.raises(UserError, match=r"process (unknown|x) on a host unknown"):
        owned(store).__enter__()
    time.sleep(0.02)
    with owned(store, stale_seconds=0.01):
        pass


def test_a_mark_is_renewed_while_it_is_held(store: Store) -> None:
    with owned(store, renew_seconds=0.02):
        (mark,) = marks(store)
        before = store.files_in_root()[mark]
        time.sleep(0.2)
        after = store.files_in_root()[mark]
    assert before is not None
    assert after is not None
    assert after > before


def test_who_finds_its_mark_gone_stops_and_says_so(store: Store) -> None:
    def lose() -> None:
        with owned(store, renew_seconds=0.02):
            store.delete(marks(store)[0])
            time.sleep(10)

    with pytest.raises(UserError, match="another may have taken it over"):
        lose()


def test_many_at_once_never_hold_it_together(store: Store) -> None:
    holding, most, held, lock = 0, 0, 0, threading.Lock()

    def contend() -> None:
        nonlocal holding, most, held
        for _ in range(5):
            try:
                with owned(store):
                    with lock:
                        holding, held = holding + 1, held + 1
                        most = max(most, holding)
                    time.sleep(0.002)
                    with lock:
                        holding -= 1
            except UserError:
                time.sleep(0.001)

    threads = [threading.Thread(target=contend) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most <= 1
    with owned(store):
        assert len(marks(store)) == 1
