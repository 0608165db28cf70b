"""The training loop: from a point of the schedule to an update, with log, held-out losses and checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import UserError
from shards.reader import ShardSet
from shards.schedule.schedule import Intervention, Point, Schedule
from shards.training import Bf16
from trainer.attention import choose_backend
from trainer.batch import Batch
from trainer.bf16 import Bf16Choice, choose_bf16
from trainer.checkpoint import Checkpoints, Found, Progress
from trainer.collectives import any_asks, from_first
from trainer.config import Job
from trainer.evaluate import HeldOut
from trainer.micro_batch import Losses, Tally, filled, losses_of, mean_loss, most_per_rank, pinned, target_count
from trainer.optimizer import ShardedAdamW
from trainer.pace import Pace
from trainer.padding import mostly_padding
from trainer.report import Log, Screen
from trainer.rope import rope_of
from trainer.sharding import distributed, is_replicated, shard
from trainer.steps_ahead import StepsAhead
from trainer.stream import Stream, fit

# The loss of an untrained model is near ln(vocabulary). One further away than this, in nats, has a cause worth finding.
_FIRST_LOSS_TOLERANCE = 0.5


class DivergedError(RuntimeError):
    """The gradient is not finite. It did not update anything."""


@dataclass(frozen=True)
class Outcome:
    """How :meth:`Trainer.run` ended: after which step, whether that was the last one, whether a rank asked for it."""

    step: int
    finished: bool
    interrupted: bool = False


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
        self._rank, self._ranks = dist.get_rank(), dist.get_world_size()
        self._device = torch.device(mesh.device_type)
        self._backend = choose_backend(job.training.attention, self._device)
        self._shards = ShardSet.open(job.folder / "shards")
        self._checkpoints = Checkpoints(job.checkpoints_path, job.training.keep_checkpoints)
        found = from_first(lambda: self._find(fresh))
        progress = None if found.name is None else self._progress(found.name)
        self._schedule = self._fitted(progress)
        self.screen = Screen(self._rank == 0, self._schedule.steps)
        self.bf16 = self._choose_bf16(progress)
        emulates = self.bf16_mode == "emulated"
        self.sharding = shard(job.model, job.training, job.vocabulary, mesh, emulate_bf16=emulates)
        sharers = None if is_replicated(self.sharding) else mesh.get_group()
        self.optimizer = ShardedAdamW(self.sharding.masters, job.training, sharers)
        self._held_out = HeldOut(self._shards, job.training.evaluate_tokens, self._rank, self._ranks, self._device)
        self.interventions: tuple[Intervention, ...] = ()
        self.step = self._saved_step = 0
        for note in found.notes:
            self.screen.say(f"warning: {note}")
        if found.name is not None and progress is not None:
            self._load(found.name, progress)
        state = None if progress is None else progress.stream
        seed, window = job.training.seed, job.training.window_shards
        self._stream = Stream(
            self._shards,
            self._schedule,
            seed,
            window_shards=window,
            state=state,
            keep=job.stream_states_path,
            writes=self._rank == 0,
        )
        self._steps = StepsAhead(self._stream, self._read, job.training.steps_ahead)

    @property
    def bf16_mode(self) -> Bf16 | None:
        """How bf16 products are computed; None for fp32."""
        return None if self.bf16 is None else self.bf16.mode

    @property
    def finished(self) -> bool:
        """True after the last step of the schedule."""
        return self.step == self._schedule.steps

    def _find(self, fresh: bool) -> Found:
        """Look for a checkpoint. Only one rank does: two that look at different moments could find different ones."""
        if fresh:
            self._checkpoints.clear()
            self._job.remove_weights()
        return self._checkpoints.find()

    def _progress(self, name: str) -> Progress:
        """Read the progress of a checkpoint, and check that it belongs to this training."""
        progress, identity = self._checkpoints.progress(name), self._job.identity
        names = sorted({*identity, *progress.identity})
        if changed := [key for key in names if progress.identity.get(key) != identity.get(key)]:
            raise UserError(
                f"checkpoint {name} belongs to another training: {', '.join(changed)} changed since then",
                place=str(self._job.checkpoints_path),
                remedy=f"Start again with 'headrace train {self._job.folder} --fresh', or restore what changed",
            )
        return progress

    def _choose_bf16(self, progress: Progress | None) -> Bf16Choice | None:
        """Choose how bf16 products are computed, on one rank for all; None for fp32."""
        training, recorded = self._job.training, None if progress is None else progress.bf16
        if training.precision != "bf16":
            return None
        folder = str(self._job.folder)
        return from_first(lambda: choose_bf16(training.bf16, recorded, self._device, folder))

    def _fitted(self, progress: Progress | None) -> Schedule:
        """Return the schedule at its true length, which is counted once, on one rank, and kept in checkpoints."""
        schedule = self._job.schedule
        if schedule.exact_epochs is None or schedule.fitted:
            return schedule
        steps = None if progress is None else progress.last_phase_steps
        if steps is None:
            seed, window, keep = self._job.training.seed, self._job.training.window_shards, self._job.fitted_path
            counted = from_first(lambda: fit(self._shards, schedule, seed, window_shards=window, keep=keep))
            steps = counted.phases[-1].steps
        return schedule.with_last_phase(steps)

    def _load(self, name: str, progress: Progress) -> None:
        """Load masters, moments and interventions from a checkpoint."""
        self._checkpoints.load(name, self._tensors())
        self.sharding.publish()
        self.optimizer.set_steps(progress.updates)
        self.interventions = tuple(Intervention.model_validate(change) for change in progress.interventions)
        self.step = self._saved_step = progress.step
        self.screen.say(f"resuming from checkpoint {name}")

    def _tensors(self) -> dict[str, Tensor]:
        masters = self.sharding.masters
        named: dict[str, Tensor] = {f"model.{n}": distributed(self.sharding, n, m) for n, m in masters.items()}
        for name, first, second in self.optimizer.moments():
            named[f"optimizer.first_moment.{name}"] = distributed(self.sharding, name, first)
            named[f"optimizer.second_moment.{name}"] = distributed(self.sharding, name, second)
        return named

    def run(self, stop_after_steps: int | None = None, stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Train to the end of the schedule, or for ``stop_after_steps`` more steps, and save a checkpoint at the end.

        ``stop`` is called before each step; if it returns True on any rank, all ranks stop there.

        Raises:
            DivergedError: if a gradient is not finite.
        """
        end = self._schedule.steps
        if stop_after_steps is not None:
            end = min(end, self.step + stop_after_steps)
        writes, interrupted = self._rank == 0 and self.step < end, False
        with ExitStack() as stack:
            log = stack.enter_context(Log(self._job.log_path, self.step)) if writes else None
            timings = stack.enter_context(Log(self._job.timings_path, self.step)) if writes else None
            stack.enter_context(self._steps)
            stack.enter_context(self.screen.progress(self.step, end))
            if self.step == 0:
                self._warn_of_padding()
                if log is not None:
                    log.write(self._start())
            pace = Pace(self._schedule.tokens_before(end), self._clock)
            while self.step < end and not (interrupted := any_asks(stop())):
                self._advance(log, timings, pace)
        if self.step != self._saved_step:
            self._save()
        return Outcome(self.step, self.finished, interrupted)

    def _warn_of_padding(self) -> None:
        training = self._job.training
        for padded in mostly_padding(self._shards, self._schedule, training.seed, training.window_shards):
            self.screen.say(f"warning: {padded}")

    def _start(self) -> dict[str, Any]:
        """Return the first line of the log: what comparable trainings must share in addition to their settings."""
        return {"kind": "start", "step": 0, "precision": self._job.training.precision, "bf16": self.bf16_mode}

    def _advance(self, log: Log | None, timings: Log | None, pace: Pace) -> None:
        """Do one step, with its log lines, evaluation and checkpoint."""
        begun = self._clock()
        point = self._schedule.at_step(self.step, self.interventions)
        line = self._skip(point) if point.skipped else self._train(point)
        self.step += 1
        seconds = self._clock() - begun
        speed = point.batch_tokens / seconds if seconds > 0 else math.inf
        if log is not None and timings is not None:
            log.write(line)
            timings.write({"step": self.step, "seconds": round(seconds, 6), "tokens_per_second": round(speed, 1)})
        if not point.skipped:
            pace.note(point.tokens + point.batch_tokens)
            self.screen.step(line, speed, pace.seconds_left)
        if self._is_evaluation_due(point):
            losses = self._evaluate(point)
            self.screen.losses(f"held-out loss after step {self.step} ({point.name})", losses)
            if log is not None:
                log.write({"kind": "held_out", "step": self.step, "phase": point.name, "domains": _table(losses)})
        if self.step % self._job.training.checkpoint_every_steps == 0:
            self._save()

    def _train(self, point: Point) -> dict[str, Any]:
        """Train on the batch of one step and return its line of the log."""
        rows = self._job.training.rows_per_micro_batch(point.context_tokens)
        most = most_per_rank(point.rows, rows, self._ranks)
        taken = self._steps.take(point.step)
        batches = filled(taken.batches, most, point.context_tokens)
        # Counted over all ranks before any backward pass, so that no gradient depends on which rank has which rows.
        count = max(1, target_count(batches, self._device))
        rope = rope_of(point.rope, self._job.model.head_width)
        tally = Tally(self._schedule.domains, self._device)
        for number, batch in enumerate(batches):
            self.sharding.begin(last=number == most - 1)
            losses = losses_of(self.sharding.model, batch, rope, self._backend, self._device)
            (losses.sum() / count).backward()  # type: ignore[no-untyped-call]
            tally.add(batch, losses)
        by_domain = tally.reduce()
        norm = self.optimizer.step(self.sharding.gradients(), point.learning_rate)
        self.sharding.publish()
        if not math.isfinite(norm):
            raise DivergedError(
                f"step {point.step + 1}: the gradient's norm is {norm}; losses by domain: {_table(by_domain)}. "
                "Lower the learning rate in the recipe's schedule"
            )
        if point.step == 0:
            self._report_first_loss(mean_loss(by_domain))
        return {
            "kind": "train",
            "step": point.step + 1,
            "tokens": point.tokens + point.batch_tokens,
            "phase": point.name,
            "context_tokens": point.context_tokens,
            "learning_rate": point.learning_rate,
            "loss": mean_loss(by_domain),
            "gradient_norm": norm,
            "padding": taken.plan.padding,
            "cut_documents": taken.plan.cut_documents,
            "domains": _table(by_domain),
        }

    def _read(self, stream: Stream, step: int) -> list[Batch]:
        """Read this rank's micro-batches of a step; called in a thread of its own."""
        rows = self._job.training.rows_per_micro_batch(self._schedule.at_step(step).context_tokens)
        batches = [stream.batch(step, part) for part in stream.rows_for(step, rows, self._rank, self._ranks)]
        return [pinned(batch) for batch in batches] if self._device.type == "cuda" else batches

    def _skip(self, point: Point) -> dict[str, Any]:
        tokens = point.tokens + point.batch_tokens
        return {"kind": "skipped", "step": point.step + 1, "tokens": tokens, "phase": point.name}

    def _report_first_loss(self, loss: float) -> None:
        expected = math.log(self._job.vocabulary)
        if abs(loss - expected) <= _FIRST_LOSS_TOLERANCE:
            self.screen.say(
                f"first loss {loss:.4f}, near ln(vocabulary) = {expected:.4f}, as expected of an untrained model"
            )
        else:
            self.screen.say(
                f"warning: first loss {loss:.4f} is far from ln(vocabulary) = {expected:.4f}: "
                "check model.init_std, and whether the tokens of the shards come from this vocabulary"
            )

    def _is_evaluation_due(self, point: Point) -> bool:
        if self._job.training.evaluate_tokens == 0:
            return False
        every = self._job.training.evaluate_every_steps
        phase_ends = self.finished or self._schedule.at_step(self.step).phase != point.phase
        return phase_ends or (every > 0 and self.step % every == 0)

    def _evaluate(self, point: Point) -> Losses:
        rows = self._job.training.rows_per_micro_batch(point.context_tokens)
        rope = rope_of(point.rope, self._job.model.head_width)
        losses = self._held_out(self.sharding.model, point.context_tokens, rows, rope, self._backend)
        self.sharding.publish()
        return losses

    def _save(self) -> None:
        progress = Progress(
            step=self.step,
            tokens=self._schedule.tokens_before(self.step),
            updates=self.optimizer.steps,
            stream=self._steps.state(self.step),
            identity=self._job.identity,
            bf16=self.bf16_mode,
            interventions=[change.model_dump(mode="json") for change in self.interventions],
            last_phase_steps=self._schedule.phases[-1].steps if self._schedule.fitted else None,
        )
        self._checkpoints.save(progress, self._tensors())
        self._saved_step = self.step


def _table(losses: Losses) -> Mapping[str, Mapping[str, float | int]]:
    return {domain: {"loss": loss, "targets": targets} for domain, (loss, targets) in losses.items()}
