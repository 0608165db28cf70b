"""Starting the ranks of a training on this machine, and turning their ends into an exit code.

It does what ``torchrun --standalone`` does, in this process, with one message instead of a traceback.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final

from shards.errors import UserError
from trainer.stop import LAUNCHER

INTERRUPTED: Final = 130
RENDEZVOUS_FAILED: Final = 3
"""Exit code of a rank that cannot join the others."""

# How often a thread looks for work before it sleeps: for about 15 us, as libgomp does when it knows of more threads
# than cores. Its default, some milliseconds, made a step 12 times slower beside two busy processes on two cores.
_SPIN_COUNT: Final = "1000"

_LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_SECONDS: Final = 5.0

# Limit for operations on the store through which ranks meet, in this process. A busy machine may be slow to answer.
_STORE_SECONDS: Final = 30

# Time for ranks to finish the current step and write a checkpoint, before they are killed.
_SECONDS_TO_STOP: Final = 180


def launch(ranks: int, arguments: list[str]) -> int:
    """Start ``python -m trainer`` on ``ranks`` ranks, wait for them to end, and return an exit code.

    Raises:
        UserError: if the ranks cannot reach each other on this machine.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    require_loopback()
    # Its reports of how a rank ended would bury the rank's own message.
    for name in ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        run_id="headrace",
        rdzv_backend="c10d",
        # An address, because the host name may not resolve.
        rdzv_endpoint=f"{_LOOPBACK}:0",
        local_addr=_LOOPBACK,
        # As the store is known to be here, it is tried once, and not waited for elsewhere.
        rdzv_configs={"is_host": True, "read_timeout": _STORE_SECONDS},
        max_restarts=0,
        shutdown_timeout=_SECONDS_TO_STOP,
    )
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        elastic_launch(config, sys.executable)("-m", "trainer", *arguments)
    except ChildFailedError as error:
        return exit_code(error.failures)
    except RendezvousError as error:
        raise _cannot_meet(error.__cause__ or error) from error
    except SignalException as error:
        return 128 + int(error.sigval)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def require_loopback() -> None:
    """Check that processes on this machine can reach each other, in seconds and not in the minutes that torch waits.

    Raises:
        UserError: if they cannot.
    """
    try:
        with socket.create_server((_LOOPBACK, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_LOOPBACK_SECONDS).close()
    except OSError as error:
        raise _cannot_meet(error) from error


def _cannot_meet(error: BaseException) -> UserError:
    said = str(error).strip().splitlines() or [type(error).__name__]
    return UserError(
        f"the ranks cannot reach each other on this machine ({said[0]})",
        place=f"the loopback address {_LOOPBACK}",
        remedy="Bring the loopback interface up ('ip link set lo up'), or let the firewall or sandbox allow it",
    )


def rank_environment(ranks: int, cores: int, given: Mapping[str, str]) -> tuple[dict[str, str], str | None]:
    """Return the variables to add to the ``given`` ones for ranks, and a note for the screen or None.

    All ranks together have no more threads than there are cores, but each has at least one. That holds even if
    ``OMP_NUM_THREADS`` asks for more, because threads without a core of their own hold up those that have one.
    """
    # A rank must not import a module of the user's folder that has one of our names. Warnings of torch would bury the
    # rank's own message.
    wanted = {"PYTHONSAFEPATH": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    if "OMP_WAIT_POLICY" not in given:
        wanted["GOMP_SPINCOUNT"] = _SPIN_COUNT
    own = {name: value for name, value in wanted.items() if name not in given}
    if interface := _loopback_interface():
        # Overrides the user's, which may be meant for several machines: these ranks are all on one.
        own["GLOO_SOCKET_IFNAME"] = interface
    most = max(1, cores // ranks)
    # The first of a list is for the outermost level of nesting, the only one here.
    asked = given.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    threads = min(most, int(asked)) if asked.isdecimal() and int(asked) > 0 else most
    note = None
    if ranks > cores:
        note = f"{ranks} ranks share {cores} core(s), so they wait for each other; --ranks {cores} is as fast"
    elif asked.isdecimal() and int(asked) > threads:
        note = f"OMP_NUM_THREADS is {asked}, but {ranks} rank(s) on {cores} core(s) use {threads} thread(s) each"
    return {**own, "OMP_NUM_THREADS": str(threads)}, note


def _loopback_interface() -> str:
    """Return the name of the loopback interface, or "" if it is an unusual one."""
    names = {name for _, name in socket.if_nameindex()} if hasattr(socket, "if_nameindex") else set()
    return next((name for name in ("lo", "lo0") if name in names), "")


def exit_code(failures: Mapping[int, Any]) -> int:
    """Return 2 if a rank raised a user error (the others are then ended), 130 if ranks were stopped, else 1."""
    codes = {rank: failure.exitcode for rank, failure in sorted(failures.items())}
    for code in (2, INTERRUPTED):
        if code in codes.values():
            return code
    for rank, code in codes.items():
        if code == RENDEZVOUS_FAILED:
            print(f"error: {_recorded(failures[rank].message)}", file=sys.stderr)
            return 1
    for rank, code in codes.items():
        # A rank that failed has said why; one that was killed could not. The other ranks then end by SIGTERM.
        if code < 0 and -code != signal.SIGTERM:
            name = signal.Signals(-code).name
            hint = ": most likely the machine ran out of memory" if -code == signal.SIGKILL else ""
            print(f"error: rank {rank} was ended by {name}{hint}", file=sys.stderr)
    return 1


def _recorded(message: str | dict[str, Any]) -> str:
    """Return the message that a rank recorded for the launcher, without the class that elastic puts before it."""
    text: str = message if isinstance(message, str) else message["message"]
    return text.partition(": ")[2]
