"""The training loop: from a point of the schedule to an update, with log, held-out losses and checkpoints.

It talks to an engine and knows nothing of ranks or stages. What a step turned out to be is read while the next one
is already queued, so that the loop never keeps the device waiting; its line of the log is written then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from shards.reader import ShardSet
from shards.schedule.schedule import Intervention, Point
from shards.training import Bf16
from trainer.batch import Batch, StepPlan
from trainer.bf16 import Bf16Choice, choose_bf16
from trainer.blame import content_digest
from trainer.checkpoint import Checkpoints, DamagedError, Found
from trainer.collectives import any_asks, from_first
from trainer.config import Job
from trainer.engine import DataParallelEngine, Update
from trainer.evaluate import HeldOut
from trainer.later import Later
from trainer.lines import first_loss_note, model_flops_utilisation, skipped_line, table, timing_line, train_line
from trainer.micro_batch import Losses, filled, mean_loss, most_per_rank, pinned
from trainer.pace import Pace
from trainer.padding import mostly_padding
from trainer.progress import Progress
from trainer.report import Log, Screen
from trainer.resume import checked_progress, fitted_schedule
from trainer.rope import rope_of
from trainer.spikes import Spikes, intervention, steps_to_keep
from trainer.steps_ahead import StepsAhead
from trainer.stream import Stream


class DivergedError(RuntimeError):
    """The gradient is not finite. It did not update anything."""


@dataclass(frozen=True)
class Outcome:
    """How :meth:`Trainer.run` ended: after which step, whether that was the last one, whether a rank asked for it."""

    step: int
    finished: bool
    interrupted: bool = False


@dataclass(frozen=True)
class _Sent:
    """A step that has been queued, and whose results are not read yet."""

    point: Point
    plan: StepPlan
    losses: Later[Losses]
    update: Later[Update]
    seconds: float
    """What queueing it took; on a CPU that is all of the step."""


@dataclass(frozen=True)
class _Outputs:
    """Where a run reports to; the logs are None on all ranks but the first."""

    log: Log | None
    timings: Log | None
    pace: Pace


class Trainer:
    """One rank of a training. Every rank builds one from the same job, and all call the same methods together."""

    def __init__(self, job: Job, mesh: DeviceMesh, clock: Callable[[], float], *, fresh: bool = False) -> None:
        """Build the model and resume from the newest complete checkpoint, or start from the beginning.

        Args:
            job: what to train.
            mesh: one-dimensional mesh of the ranks.
            clock: returns seconds, for speeds on the screen and in the timings; never affects what is computed.
            fresh: remove all checkpoints and start again.

        Raises:
            UserError: if the checkpoint belongs to another model, schedule or set of shards, or was trained in another
                mode of bf16.
        """
        self._job, self._clock = job, clock
        self._device = torch.device(mesh.device_type)
        self._shards = ShardSet.open(job.folder / "shards")
        self._checkpoints = Checkpoints(
            job.checkpoints_path,
            job.training.keep_checkpoints,
            keep_every_steps=job.training.keep_every_steps,
            keep_back_steps=steps_to_keep(job.training),
            asynchronous=job.training.asynchronous_checkpoints,
        )
        self._first = dist.get_rank() == 0
        self.interventions: tuple[Intervention, ...] = ()
        self.step = self._saved_step = 0
        self._sent: _Sent | None = None
        self._stops, self._spikes = False, Spikes()
        notes: list[str] = []
        damaged: list[str] = []
        while not self._starts(mesh, fresh, notes, damaged):
            fresh = False
        ranks = self.engine.data_rank, self.engine.data_ranks
        self._held_out = HeldOut(self._shards, job.training.evaluate_tokens, *ranks, self._device)

    def _starts(self, mesh: DeviceMesh, fresh: bool, notes: list[str], damaged: list[str]) -> bool:
        """Build everything from the newest checkpoint that is not ``damaged``; return False if that one is, too."""
        job = self._job
        found = from_first(lambda: self._find(fresh, damaged))
        progress = None if found.name is None else checked_progress(job, self._checkpoints, found.name)
        self._schedule = fitted_schedule(job, self._shards, progress)
        self.screen = Screen(self._first, self._schedule.steps)
        self.bf16 = self._choose_bf16(progress)
        self.engine = DataParallelEngine(
            job.model,
            job.training,
            job.vocabulary,
            self._schedule.domains,
            mesh,
            emulate_bf16=self.bf16_mode == "emulated",
        )
        notes += [note for note in found.notes if note not in notes]
        if progress is None:
            self._open_stream(None)
        else:
            try:
                self._take(progress)
            except DamagedError as error:
                notes.append(f"{error.what}: skipped")
                damaged.append(progress.name)
                return False
        for note in notes:
            self.screen.say(f"warning: {note}")
        if progress is not None:
            self.screen.say(f"resuming from checkpoint {progress.name}")
        return True

    @property
    def bf16_mode(self) -> Bf16 | None:
        """How bf16 products are computed; None for fp32."""
        return None if self.bf16 is None else self.bf16.mode

    @property
    def finished(self) -> bool:
        """True after the last step of the schedule."""
        return self.step == self._schedule.steps

    def _find(self, fresh: bool, damaged: list[str]) -> Found:
        """Look for a checkpoint. Only one rank does: two that look at different moments could find different ones."""
        if fresh:
            self._checkpoints.clear()
            self._job.remove_weights()
        return self._checkpoints.find(damaged)

    def _choose_bf16(self, progress: Progress | None) -> Bf16Choice | None:
        """Choose how bf16 products are computed, on one rank for all; None for fp32."""
        training, recorded = self._job.training, None if progress is None else progress.bf16
        if training.precision != "bf16":
            return None
        folder = str(self._job.folder)
        return from_first(lambda: choose_bf16(training.bf16, recorded, self._device, folder))

    def _open_stream(self, state: Mapping[str, Any] | None) -> None:
        """Serve steps from a state of the stream on, or from the first."""
        training = self._job.training
        self._stream = Stream(
            self._shards,
            self._schedule,
            training.seed,
            window_shards=training.window_shards,
            state=state,
            keep=self._job.stream_states_path,
            writes=self._first,
        )
        self._steps = StepsAhead(self._stream, self._read, training.steps_ahead)

    def _read(self, stream: Stream, step: int) -> list[Batch]:
        """Read this rank's micro-batches of a step; called in a thread of its own."""
        rows = self._job.training.rows_per_micro_batch(self._schedule.at_step(step).context_tokens)
        parts = stream.rows_for(step, rows, self.engine.data_rank, self.engine.data_ranks)
        batches = [stream.batch(step, part) for part in parts]
        return [pinned(batch) for batch in batches] if self._device.type == "cuda" else batches

    def resume(self, progress: Progress) -> None:
        """Continue from a checkpoint in the middle of a run; steps after it are forgotten.

        Raises:
            DamagedError: if its tensors are not what was written.
        """
        self._checkpoints.wait()
        self._steps.close()
        self._take(progress)
        self.screen.say(f"resuming from checkpoint {progress.name}")

    def _take(self, progress: Progress) -> None:
        self._sent = None
        self._checkpoints.load(progress.name, self.engine.state())
        self.engine.loaded(progress.updates)
        self.interventions = tuple(Intervention.model_validate(change) for change in progress.interventions)
        self._spikes = Spikes.parse(progress.spikes)
        self._open_stream(progress.stream)
        self.step = self._saved_step = progress.step

    def run(self, stop_after_steps: int | None = None, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the end of the schedule, or for ``stop_after_steps`` more steps, and save a checkpoint at the end.

        ``stop`` is called before each step. What it says travels with the results of the step, so if it returns True
        on any rank, all ranks stop after the step that follows.

        Raises:
            DivergedError: if a gradient is not finite.
        """
        end = self._schedule.steps
        if stop_after_steps is not None:
            end = min(end, self.step + stop_after_steps)
        writes, self._stops = self._first and self.step < end, any_asks(stop())
        with ExitStack() as stack:
            log = stack.enter_context(Log(self._job.log_path, self.step)) if writes else None
            timings = stack.enter_context(Log(self._job.timings_path, self.step)) if writes else None
            # Going back to an earlier step opens another one.
            stack.callback(lambda: self._steps.close())
            stack.enter_context(self.screen.progress(self.step, end))
            if self.step == 0:
                self._warn_of_padding()
                if log is not None:
                    log.write(self._start())
            outputs = _Outputs(log, timings, Pace(self._schedule.tokens_before(end), self._clock))
            while True:
                while self.step < end and not self._stops:
                    self._advance(outputs, stop())
                # What the last step reveals may lead back.
                if not self._settle(outputs):
                    break
        if self.step != self._saved_step:
            self._save()
        self._checkpoints.wait()
        return Outcome(self.step, self.finished, self._stops and self.step < end)

    def _warn_of_padding(self) -> None:
        training = self._job.training
        for padded in mostly_padding(self._shards, self._schedule, training.seed, training.window_shards):
            self.screen.say(f"warning: {padded}")

    def _start(self) -> dict[str, Any]:
        """Return the first line of the log: what comparable trainings must share in addition to their settings."""
        return {"kind": "start", "step": 0, "precision": self._job.training.precision, "bf16": self.bf16_mode}

    def _advance(self, outputs: _Outputs, asks: bool) -> None:
        """Queue one step, report the one before, and evaluate and save where it is due."""
        point = self._schedule.at_step(self.step, self.interventions)
        sent = None if point.skipped else self._send(point, asks)
        if self._settle(outputs):
            return  # to an earlier step: what has just been queued is forgotten
        self.step += 1
        if sent is None:
            if outputs.log is not None:
                outputs.log.write(skipped_line(point))
        else:
            self._sent = sent
        if self._is_evaluation_due(point):
            if self._settle(outputs):
                return
            losses = self._evaluate(point)
            self.screen.losses(f"held-out loss after step {self.step} ({point.name})", losses)
            if outputs.log is not None:
                line = {"kind": "held_out", "step": self.step, "phase": point.name, "domains": table(losses)}
                outputs.log.write(line)
        if self.step % self._job.training.checkpoint_every_steps == 0 and not self._settle(outputs):
            self._save()

    def _send(self, point: Point, asks: bool) -> _Sent:
        """Queue the computations of one step."""
        begun = self._clock()
        rows, ranks = self._job.training.rows_per_micro_batch(point.context_tokens), self.engine.data_ranks
        most = most_per_rank(point.rows, rows, ranks)
        taken = self._steps.take(point.step)
        batches = filled(taken.batches, most, point.context_tokens)
        # Known before any backward pass, so that no gradient depends on which rank has which rows.
        count = max(1, taken.plan.targets)
        losses = self.engine.accumulate(batches, count, rope_of(point.rope, self._job.model.head_width))
        update = self.engine.step(point.learning_rate, asks=asks)
        return _Sent(point, taken.plan, losses, update, self._clock() - begun)

    def _settle(self, outputs: _Outputs) -> bool:
        """Read the results of the step that was queued last, if they are still to be read, and report them.

        Returns:
            True if they made the run go back to an earlier step.
        """
        if self._sent is None:
            return False
        sent, self._sent = self._sent, None
        begun = self._clock()
        losses, update, point = sent.losses.get(), sent.update.get(), sent.point
        # Queueing and waiting: what lies between belongs to the next step.
        seconds = sent.seconds + self._clock() - begun
        self._stops = self._stops or update.asks
        heals = self._job.training.on_spike != "stop"
        if not (heals or math.isfinite(update.norm)):
            raise DivergedError(
                f"step {point.step + 1}: the gradient's norm is {update.norm}; losses by domain: {table(losses)}. "
                "Lower the learning rate in the recipe's schedule"
            )
        if point.step == 0:
            self.screen.say(first_loss_note(mean_loss(losses), self._job.vocabulary))
        line, step = train_line(point, sent.plan, losses, update), point.step + 1
        speed = point.batch_tokens / seconds if seconds > 0 else math.inf
        if outputs.log is not None and outputs.timings is not None:
            outputs.log.write(line)
            outputs.timings.write(timing_line(step, seconds, speed, self._utilisation(point, speed)))
        outputs.pace.note(point.tokens + point.batch_tokens)
        self.screen.step(line, speed, outputs.pace.seconds_left)
        if not heals:
            return False
        lasts = self._spikes.note(point.step, point.phase, line["loss"], update.norm, self._job.training)
        if lasts:
            self._heal(outputs, point.step)
        return lasts

    def _utilisation(self, point: Point, speed: float) -> float | None:
        """Return the MFU at a speed in tokens a second; None if the peak is unknown."""
        peak = self._job.training.peak_flops
        if peak is None:
            return None
        size = self._job.model, self._job.vocabulary, point.context_tokens
        return model_flops_utilisation(*size, speed, peak, self.engine.data_ranks)

    def _heal(self, outputs: _Outputs, last: int) -> None:
        """Go back to before a spike, whose newest step is ``last``, and change what led to it.

        Raises:
            DivergedError: if that was done often enough, or there is no checkpoint from before the spike.
        """
        training, spikes = self._job.training, self._spikes
        if spikes.healed >= training.max_spikes:
            raise DivergedError(
                f"step {last + 1}: another spike after {spikes.healed} that were healed (training.max_spikes). "
                f"'headrace blame {self._job.folder} {last + 1}' names its documents"
            )
        change = intervention(spikes, last, self._schedule.steps, training, "")
        self._checkpoints.wait()
        back = training.spike_rollback_steps
        name = from_first(lambda: self._checkpoints.back_from(change.from_step, back))
        if name is None:
            raise DivergedError(f"{change.reason}: there is no checkpoint from before it; save more often")
        self.resume(self._checkpoints.progress(name))
        batches = ",".join(self._digests(change.from_step, last + 1))
        change = intervention(spikes, last, self._schedule.steps, training, batches)
        self._spikes.healed = spikes.healed + 1
        self.interventions = (*self.interventions, change)
        for log in (outputs.log, outputs.timings):
            if log is not None:
                log.rewind(self.step)
        if outputs.log is not None:
            outputs.log.write({"kind": "healed", "step": self.step, "change": change.model_dump(mode="json")})
        self.screen.say(f"warning: {change.reason}; going back to step {self.step}: {change.kind}")
        self._save()
        self._checkpoints.wait()
        if self._first:
            self._checkpoints.forget_after(self.step)

    def _digests(self, first: int, until: int) -> list[str]:
        """Return the digests of the batches of some steps that are still ahead."""
        found = [content_digest(self._stream.plan(step)) for step in range(first, until)]
        self._stream.seek(self.step)
        return found

    def _is_evaluation_due(self, point: Point) -> bool:
        if self._job.training.evaluate_tokens == 0:
            return False
        every = self._job.training.evaluate_every_steps
        phase_ends = self.finished or self._schedule.at_step(self.step).phase != point.phase
        return phase_ends or (every > 0 and self.step % every == 0)

    def _evaluate(self, point: Point) -> Losses:
        rows = self._job.training.rows_per_micro_batch(point.context_tokens)
        rope = rope_of(point.rope, self._job.model.head_width)
        return self.engine.evaluate(self._held_out, point.context_tokens, rows, rope)

    def _save(self) -> None:
        progress = Progress(
            step=self.step,
            tokens=self._schedule.tokens_before(self.step),
            updates=self.engine.updates,
            stream=self._steps.state(self.step),
            identity=self._job.identity,
            bf16=self.bf16_mode,
            spikes=asdict(self._spikes),
            interventions=[change.model_dump(mode="json") for change in self.interventions],
            last_phase_steps=self._schedule.phases[-1].steps if self._schedule.fitted else None,
        )
        self._checkpoints.save(progress, self.engine.state())
        self._saved_step = self.step
