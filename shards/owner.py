"""Who works in a folder of a remote store, where no kernel holds a lock: a mark with an age, renewed while it is held.

Each owner puts a mark under a name of its own and then lists all of them. A store that shows what was put, as S3, GCS
and Azure do, shows at least one of two the other's mark; whoever sees one withdraws. Where the client can put a file on
the condition that there is none, the name is the number after the last: then only one of two can have it, whatever a
listing shows. Ages are differences of the store's own clock. A mark is stale if it was not renewed for a while, or if
its process ran on this machine and has ended.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shards.errors import IncompleteError, UserError
from shards.store import Store

MARK: Final = ".owner-"
"""How the names of marks begin, directly in the folder."""
RENEW_SECONDS: Final = 20.0
STALE_SECONDS: Final = 180.0
"""A mark of this age is nobody's: its owner has missed nine renewals."""

_NAME: Final = re.compile(rf"{re.escape(MARK)}(\d{{6}})(-[0-9a-f]+)?\.json")

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def owned(
    store: Store, *, renew_seconds: float = RENEW_SECONDS, stale_seconds: float = STALE_SECONDS
) -> Iterator[None]:
    """Hold a remote folder for one process at a time.

    Where the folder is lost meanwhile, because this process did nothing for longer than ``stale_seconds`` and another
    took over, the main thread is interrupted.

    Args:
        store: the folder's.
        renew_seconds: how often the mark is renewed.
        stale_seconds: the age at which another's mark counts for nothing.

    Raises:
        UserError: if another process works there, or has taken over.
        OSError: if the store cannot be written.
    """
    mark = _take(store, stale_seconds)
    stop, lost = threading.Event(), threading.Event()

    def renew() -> None:
        seen = time.monotonic()
        while not stop.wait(renew_seconds):
            # A store that does not answer is asked again, until the mark is so old that another may take over.
            with contextlib.suppress(OSError):
                if not store.exists(mark.name):
                    break
                store.write_bytes(mark.name, mark.data)
                seen = time.monotonic()
            if time.monotonic() - seen > stale_seconds / 2:
                break
        if not stop.is_set():
            lost.set()
            _thread.interrupt_main()

    thread = threading.Thread(target=renew, daemon=True, name="headrace-owner")
    thread.start()
    try:
        yield
    except KeyboardInterrupt:
        if lost.is_set():
            raise _lost(store) from None
        raise
    finally:
        stop.set()
        thread.join()
        # One that stays is stale once this process has ended, or in a while.
        with contextlib.suppress(OSError):
            if not lost.is_set():
                store.delete(mark.name)
    if lost.is_set():
        raise _lost(store)


@dataclass(frozen=True)
class _Mark:
    name: str
    data: bytes


def _take(store: Store, stale_seconds: float) -> _Mark:
    """Put a mark and return it; remove those that are stale."""
    data = json.dumps(_myself()).encode()
    for _ in range(3):
        last = max((int(found[1]) for found in map(_NAME.fullmatch, store.files_in_root()) if found), default=0)
        mark = _Mark(f"{MARK}{last + 1:06d}.json", data)
        created = store.create(mark.name, data)
        if created is None:
            mark = _Mark(f"{MARK}{last + 1:06d}-{uuid.uuid4().hex[:8]}.json", data)
            store.write_bytes(mark.name, data)
        if created is not False:
            break
    else:
        raise _taken(store, "others are beginning to, at this moment")
    try:
        _require_alone(store, mark.name, stale_seconds)
    except BaseException:
        with contextlib.suppress(OSError):
            store.delete(mark.name)
        raise
    return mark


def _require_alone(store: Store, mine: str, stale_seconds: float) -> None:
    times = {name: at for name, at in store.files_in_root().items() if _NAME.fullmatch(name)}
    now = times.pop(mine, None)
    for name, at in times.items():
        age = (now - at) / 1e9 if now is not None and at is not None else None
        who = _owner(store, name)
        if who is None:
            # Released between the listing and this look.
            continue
        if not (_has_ended(who) or (age is not None and age > stale_seconds)):
            raise _taken(store, _described(who, age), stale_seconds)
        _log.warning("took over %s from %s, which is no longer at work", store.root, _described(who, age))
        with contextlib.suppress(OSError):
            store.delete(name)


def _owner(store: Store, name: str) -> dict[str, Any] | None:
    """Return what a mark says of its owner, nothing but an empty answer where it is damaged; None if it has gone."""
    try:
        value = store.read_json(name)
    except IncompleteError:
        return {} if store.exists(name) else None
    return value if isinstance(value, dict) else {}


def _myself() -> dict[str, Any]:
    return {"host": socket.gethostname(), "machine": _machine(), "pid": os.getpid(), "began": _began(os.getpid())}


def _machine() -> str:
    """Return what tells this machine since it was started, and this container on it, from all others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return when a process of this machine began, in its own units; empty if there is none, or no knowing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _has_ended(who: dict[str, Any]) -> bool:
    machine = _machine()
    if not machine or who.get("machine") != machine or not isinstance(who.get("pid"), int):
        return False
    return _began(who["pid"]) != who.get("began")


def _described(who: dict[str, Any], age: float | None) -> str:
    heard = "" if age is None else f", last heard of {max(0.0, age):.0f} s ago"
    return f"process {who.get('pid', 'unknown')} on {who.get('host', 'a host unknown')}{heard}"


def _taken(store: Store, who: str, stale_seconds: float = STALE_SECONDS) -> UserError:
    return UserError(
        f"another process is working in this folder ({who})",
        place=store.root,
        remedy=f"Wait for it, or stop it. If it is no more, run again {stale_seconds:.0f} s after it was last heard of",
    )


def _lost(store: Store) -> UserError:
    return UserError(
        "this process did not reach the folder for so long that another may have taken it over",
        place=store.root,
        remedy="Finished work is kept: run the same command again, which says who works there",
    )
