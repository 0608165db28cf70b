"""Running a pass's pipeline: in this process, in N local processes over the units, or on any Beam runner.

Local work is pinned to FnApiRunner, in memory, one per process, also where it is asked for as DirectRunner. Beam's own
local parallel modes lose elements silently (two threads flush one buffer without a lock), so they are refused.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from pipelines.beam.attempts import Attempts, run_until_done
from pipelines.beam.base import BeamPass, Builder, Inputs
from pipelines.beam.dofn import take_noted
from pipelines.beam.options import BeamOptions
from pipelines.beam.work_list import units_of, write_parts
from pipelines.failures import is_debugging, is_of_memory
from pipelines.workspace import Job
from shards.manifest import PassFolder

POLL_SECONDS = 0.5
POLL_SHARE = 10

# Zero makes every element flush at once from the writer's own thread: a timer's flush without its lock loses data
# (2.77).
worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


class RunnerError(RuntimeError):
    """A runner or a worker failed; finished units are kept, and a restart resumes from them."""


class WorkerDiedError(RunnerError):
    """A local worker process ended before its work did."""


class LocalRunner:
    """N processes over the units of a pass, each with an in-memory FnApiRunner.

    Args:
        workers: processes; with one, pipelines run in this process itself.
        options: Beam's, for every pipeline.
        protects_driver: whether documents are never handed to native libraries in this process, but always in a worker.
    """

    def __init__(self, workers: int, options: Sequence[str] = (), *, protects_driver: bool = False) -> None:
        self._workers, self._options, self._protects_driver = workers, tuple(options), protects_driver
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> LocalRunner:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _end_workers(self) -> None:
        """End all workers at once: whoever stops a run does not wait for what they have begun."""
        pool, self._pool = self._pool, None
        if pool is None:
            return
        for process in list((pool._processes or {}).values()):
            process.kill()
        pool.shutdown(cancel_futures=True)

    def run(self, work: BeamPass, job: Job, inputs: Inputs, units: Sequence[str], poll: Callable[[], None]) -> None:
        """Do the units, calling ``poll`` now and then; again those whose worker died, each call in a child process.

        Raises:
            RunnerError: if workers die and no unit is finished in between.
        """
        folder = PassFolder(job.store, job.pass_name, job.digest, work.folders)
        run_until_done(
            lambda left: self._run_once(work, job, inputs, left, poll),
            units,
            lambda left: folder.survey().pending(left),
            WorkerDiedError,
        )

    def _run_once(
        self, work: BeamPass, job: Job, inputs: Inputs, units: Sequence[str], poll: Callable[[], None]
    ) -> None:
        limit = work.units_per_pipeline or len(units)
        chunks = [units[start : start + limit] for start in range(0, len(units), limit)]
        if len(chunks) < self._workers and len(units) > 1:
            # Every worker its share, in turns: neighbours in size, so shares are about even.
            shares = [units[start :: self._workers] for start in range(self._workers)]
            chunks = [share for share in shares if share]
        parts = Pipeline.parts_of(work, job, inputs, units) if work.starts_from_all else None
        pipelines = (Pipeline.of(work, job, inputs, chunk, parts) for chunk in chunks)
        if (self._workers == 1 or len(chunks) == 1) and not (self._protects_driver and work.calls_native):
            with _polling(poll):
                for pipeline in pipelines:
                    pipeline.run(self._options)
            return
        self._run_in_pool(list(pipelines), poll)

    def _run_in_pool(self, pipelines: Sequence[Pipeline], poll: Callable[[], None]) -> None:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context, initializer=_be_a_worker)
        with _deaf_children():
            waiting = {self._pool.submit(pipeline.run, self._options) for pipeline in pipelines}
        look = _Look(poll)
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
                look()
        except BrokenProcessPool as error:
            self._end_workers()
            raise WorkerDiedError(
                f"worker processes died in pass {pipelines[0].job.pass_name} (out of memory, or killed); finished work "
                "is kept: run the same command again, with fewer --workers if memory was short"
            ) from error
        except BaseException:
            self._end_workers()
            # None of them ended by itself: no document is to be suspected.
            with contextlib.suppress(OSError):
                Attempts(pipelines[0].job.store, pipelines[0].job.pass_name).forget()
            raise


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
    # Beam has threads that others wait for without end.
    threading.excepthook = _end_of_a_thread
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True, name="headrace-parent").start()
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    # A library's panic is one document's failure, and counted as such: where in the library is of no use to anyone.
    os.environ["RUST_BACKTRACE"] = "0"


def _end_of_a_thread(failed: threading.ExceptHookArgs) -> None:
    """End a worker in which a thread has failed: the driver then goes on without it."""
    if is_debugging():
        threading.__excepthook__(failed)
    os._exit(1)


def _end_with(parent: int) -> None:
    """End this process when its driver has: the pool's own queue would keep an orphan alive, and at work."""
    while os.getppid() == parent:
        time.sleep(POLL_SECONDS)
    os._exit(1)


@dataclass(frozen=True)
class Pipeline:
    """A pipeline over some units of a pass, as another process can build and run it."""

    job: Job
    parts: Sequence[str]
    add: Builder

    @classmethod
    def of(
        cls, work: BeamPass, job: Job, inputs: Inputs, units: Sequence[str], parts: Sequence[str] | None = None
    ) -> Pipeline:
        """Return the pipeline over units, the list of whose work lies in ``parts``; without them, it is written."""
        return cls(job, parts or cls.parts_of(work, job, inputs, units), work.builder(job, inputs, units))

    @staticmethod
    def parts_of(work: BeamPass, job: Job, inputs: Inputs, units: Sequence[str]) -> list[str]:
        """Write the list of the units' work, and return where its parts lie."""
        return write_parts(job.store, job.pass_name, work.roots(inputs, units))

    def build(self, pipeline: Any) -> None:
        """Add its transforms to a ``beam.Pipeline``."""
        self.add(units_of(pipeline, self.job, self.parts))

    def run(self, options: Sequence[str] = ()) -> None:
        """Run it in this process, in memory.

        Raises:
            UserError, OSError, MemoryError: as they were raised where the work is done.
        """
        take_noted()
        pipeline = _beam_pipeline(FnApiRunner(), options)
        self.build(pipeline)
        with _failing_threads():
            try:
                pipeline.run().wait_until_finish()
            except Exception as error:
                if (noted := take_noted() or _interrupt_in(error)) is not None:
                    raise noted from None
                if is_of_memory(error):
                    raise MemoryError from error
                raise


def _interrupt_in(error: BaseException) -> KeyboardInterrupt | None:
    """Return the interrupt that Beam made an error of, as it does with any; None if there is none."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__cause__ or found.__context__
    return found


@contextlib.contextmanager
def _failing_threads() -> Iterator[None]:
    """Raise in the body what ends a thread meanwhile: Beam's other threads would wait for it without end."""
    if threading.current_thread() is not threading.main_thread() or threading.excepthook is _end_of_a_thread:
        yield
        return
    failures: list[BaseException] = []

    def interrupt(failed: threading.ExceptHookArgs) -> None:
        if failed.exc_value is not None:
            failures.append(failed.exc_value)
        _thread.interrupt_main()

    before, threading.excepthook = threading.excepthook, interrupt
    try:
        yield
    except KeyboardInterrupt:
        if failures:
            raise failures[0] from None
        raise
    finally:
        threading.excepthook = before


def _beam_pipeline(runner: Any, options: Sequence[str]) -> Any:
    """Return an empty pipeline, without the folder that each one has for files of transforms in other languages."""
    hush_beam()
    pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(options)))
    # A process that is killed would leave it.
    shutil.rmtree(pipeline.local_tempdir, ignore_errors=True)
    return pipeline


def hush_beam() -> None:
    """Let Beam's log say nothing of what is told in a message: it has every error with a traceback, twice."""
    logging.getLogger("apache_beam").setLevel(logging.WARNING if is_debugging() else logging.CRITICAL + 1)


class BeamRunner:
    """Any Beam runner, by its own options, such as ``--runner=PrismRunner`` or ``--runner=PortableRunner``."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = list(options)

    def __enter__(self) -> BeamRunner:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def run(self, work: BeamPass, job: Job, inputs: Inputs, units: Sequence[str], poll: Callable[[], None]) -> None:
        """Do the units in one pipeline.

        Raises:
            RunnerError: if the runner reports anything but success.
        """
        pipeline = _beam_pipeline(None, [*self._options, f"--job_name=headrace-{work.name.replace('_', '-')}"])
        Pipeline.of(work, job, inputs, units).build(pipeline)
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


class _Look:
    """Calls ``poll``, and again only after ten times as long as that took: a listing may have a million names."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll, self._next = poll, 0.0

    def __call__(self) -> None:
        started = time.monotonic()
        if started < self._next:
            return
        # Progress is no reason to stop work: a store that does not answer will be asked again.
        with contextlib.suppress(OSError, MemoryError):
            self._poll()
        self._next = time.monotonic() + POLL_SHARE * (time.monotonic() - started)


@contextlib.contextmanager
def _polling(poll: Callable[[], None]) -> Iterator[None]:
    """Call ``poll`` from a thread while the body blocks."""
    stop = threading.Event()
    look = _Look(poll)

    def loop() -> None:
        while not stop.wait(POLL_SECONDS):
            look()

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
        return LocalRunner(workers, protects_driver=True)
    return LocalRunner(workers, options.arguments) if options.is_local else BeamRunner(options.arguments)
