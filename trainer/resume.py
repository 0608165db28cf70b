"""Where a training starts: which checkpoint it may resume from, and how long its schedule is."""

from __future__ import annotations

from shards.errors import UserError
from shards.reader import ShardSet
from shards.schedule.schedule import Schedule
from trainer.checkpoint import Checkpoints
from trainer.collectives import from_first
from trainer.config import Job
from trainer.progress import Progress
from trainer.stream import fit


def checked_progress(job: Job, checkpoints: Checkpoints, name: str) -> Progress:
    """Read the progress of a checkpoint.

    Raises:
        UserError: if it belongs to another training.
    """
    progress, identity = checkpoints.progress(name), job.identity
    names = sorted({*identity, *progress.identity})
    if changed := [key for key in names if progress.identity.get(key) != identity.get(key)]:
        raise UserError(
            f"checkpoint {name} belongs to another training: {', '.join(changed)} changed since then",
            place=str(job.checkpoints_path),
            remedy=f"Start again with 'headrace train {job.folder} --fresh', or restore what changed",
        )
    return progress


def fitted_schedule(job: Job, shards: ShardSet, progress: Progress | None) -> Schedule:
    """Return the schedule at its true length, which is counted once, on one rank, and kept in checkpoints."""
    schedule = job.schedule
    if schedule.exact_epochs is None or schedule.fitted:
        return schedule
    steps = None if progress is None else progress.last_phase_steps
    if steps is None:
        seed, window, keep = job.training.seed, job.training.window_shards, job.fitted_path
        counted = from_first(lambda: fit(shards, schedule, seed, window_shards=window, keep=keep))
        steps = counted.phases[-1].steps
    return schedule.with_last_phase(steps)
