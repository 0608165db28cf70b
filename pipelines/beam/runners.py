"""Running a pass's pipeline: in this process, in N local processes over the units, or on any Beam runner.

Local work is pinned to FnApiRunner, in memory, one per process, also where it is asked for as DirectRunner. Beam's own
local parallel modes lose elements silently (two threads flush one buffer without a lock), so they are refused.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam.base import Pass
from pipelines.beam.dofn import take_noted
from pipelines.beam.options import BeamOptions
from pipelines.workspace import Run

POLL_SECONDS = 0.5

# Zero makes every element flush at once from the writer's own thread: a timer's flush without its lock loses data
# (2.77).
worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


class RunnerError(RuntimeError):
    """A runner or a worker failed; finished units are kept and a restart goes on from them."""


class LocalRunner:
    """N processes over the units of a pass, each with an in-memory FnApiRunner; with one, this process itself."""

    def __init__(self, workers: int, options: Sequence[str] = ()) -> None:
        """Take the number of processes, and Beam's options for every pipeline."""
        self._workers, self._options = workers, tuple(options)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, work: Pass, run: Run, units: Sequence[str], poll: Callable[[], None]) -> None:
        """Do the units, calling ``poll`` now and then.

        Raises:
            RunnerError: if a worker died.
        """
        limit = work.units_per_pipeline or len(units)
        chunks = [units[start : start + limit] for start in range(0, len(units), limit)]
        if len(chunks) < self._workers and len(units) > 1:
            # Every worker its share, in turns: neighbours in size, so shares are about even.
            shares = [units[start :: self._workers] for start in range(self._workers)]
            chunks = [share for share in shares if share]
        if self._workers == 1 or len(chunks) == 1:
            with _polling(poll):
                for chunk in chunks:
                    run_in_memory(work, run, chunk, self._options)
            return
        self._run_in_pool(work, run, chunks, poll)

    def _run_in_pool(self, work: Pass, run: Run, chunks: Sequence[Sequence[str]], poll: Callable[[], None]) -> None:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_be_a_worker)
        with _deaf_children():
            waiting = {self._pool.submit(run_in_memory, work, run, chunk, self._options) for chunk in chunks}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                with contextlib.suppress(OSError):
                    poll()
        except BrokenProcessPool as error:
            self._pool = None
            raise RunnerError(
                f"a worker process died in pass {work.name} (out of memory, or killed); finished work is kept: "
                "run the same command again, with fewer --workers if memory was short"
            ) from error
        finally:
            for future in waiting:
                future.cancel()


@contextlib.contextmanager
def _deaf_children() -> Iterator[None]:
    """Let processes that start meanwhile ignore Ctrl-C until they are workers: imports cut short would print traces."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _be_a_worker() -> None:
    # Ctrl-C reaches every process of the terminal: the driver speaks of it, workers end in silence.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    pa.set_cpu_count(1)
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True, name="headrace-parent").start()
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


def _end_with(parent: int) -> None:
    """End this process when its driver has: the pool's own queue would keep an orphan alive, and at work."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


def run_in_memory(work: Pass, run: Run, units: Sequence[str], options: Sequence[str] = ()) -> None:
    """Do units in this process, in one pipeline."""
    take_noted()
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions(list(options)))
    work.builder(run, units)(pipeline)
    try:
        pipeline.run().wait_until_finish()
    except Exception:
        if (noted := take_noted()) is not None:
            raise noted from None
        raise


class BeamRunner:
    """Any Beam runner, by its own options, such as ``--runner=PrismRunner`` or ``--runner=PortableRunner``."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = list(options)

    def __enter__(self) -> BeamRunner:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(self, work: Pass, run: Run, units: Sequence[str], poll: Callable[[], None]) -> None:
        """Do the units in one pipeline.

        Raises:
            RunnerError: if the runner reports anything but success.
        """
        options = PipelineOptions([*self._options, f"--job_name=headrace-{work.name.replace('_', '-')}"])
        pipeline = beam.Pipeline(options=options)
        work.builder(run, units)(pipeline)
        with _polling(poll):
            try:
                state = pipeline.run().wait_until_finish()
            except Exception as error:
                # A runner raises what it likes; its last line says what went wrong, and the units done are marked.
                said = str(error).strip().splitlines() or [type(error).__name__]
                raise RunnerError(
                    f"the runner failed in pass {work.name}; finished work is kept. It said: {said[-1]}"
                ) from error
        if state not in ("DONE", None):
            raise RunnerError(f"the runner ended pass {work.name} as {state}; finished work is kept")


@contextlib.contextmanager
def _polling(poll: Callable[[], None]) -> Iterator[None]:
    """Call ``poll`` from a thread while the body blocks."""
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(POLL_SECONDS):
            # Progress is no reason to stop work: a store that does not answer will be asked again.
            with contextlib.suppress(OSError):
                poll()

    thread = threading.Thread(target=loop, daemon=True, name="headrace-progress")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def make_runner(workers: int, options: BeamOptions | None) -> LocalRunner | BeamRunner:
    """Return the runner that a command line asks for: headrace's own, unless Beam's options name another."""
    if options is None:
        return LocalRunner(workers)
    return LocalRunner(workers, options.arguments) if options.is_local else BeamRunner(options.arguments)
