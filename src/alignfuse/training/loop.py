"""The training loop: epochs, validation, checkpoints, the log. What one step does stands in `step.py`.

The loop knows no system. All that a step depends on is a function of (seed, step) or part of the checkpoint, so a run
that was killed and resumed gives the losses of one that was not, bit for bit on a CPU.
"""

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import nn

from alignfuse.data.collate import Loaded
from alignfuse.errors import UserError, one_line
from alignfuse.systems.protocols import Clock, System
from alignfuse.training import checkpoint, distributed, estimate
from alignfuse.training.bad_samples import BadSamples
from alignfuse.training.health import MatchingWatch
from alignfuse.training.logging import MetricsLog, Window
from alignfuse.training.memory import explained
from alignfuse.training.optimizer import make_optimizer
from alignfuse.training.precision import choose_dtype, reproducible
from alignfuse.training.progress import Pace, Reporter
from alignfuse.training.schedule import learning_rate
from alignfuse.training.settings import TrainingConfig
from alignfuse.training.step import Updater
from alignfuse.training.stop import StopRequest, stop_requests


@runtime_checkable
class Data(Protocol):
    """Where micro-batches come from."""

    @property
    def samples(self) -> int:
        """Samples of an epoch, on all ranks together."""
        ...

    @property
    def updates(self) -> int:
        """Optimizer steps of an epoch."""
        ...

    def groups(self, first: int, last: int) -> Iterator[list[Loaded]]:
        """This rank's micro-batches of updates `first` to `last` - 1, counted from the start of the run."""
        ...


class Validation(NamedTuple):
    """What a validation found. The model with the highest score is kept in best/."""

    score: float
    metrics: Mapping[str, int | float]


class Result(NamedTuple):
    """How a run ended."""

    step: int
    finished: bool  # False: stopped by a signal, to be resumed
    best: float | None  # highest score


def fit(
    system: System,
    data: Data,
    config: TrainingConfig,
    out: Path,
    *,
    device: torch.device,
    validate: Callable[[], Validation] | None = None,
    resume: bool = False,
) -> Result:
    """Train `system` in place and leave the run in the directory `out`, which `checkpoint.prepare` has made.

    `validate` is called after each epoch, on every rank, with the system in evaluation mode. With `resume` the run goes
    on from `last/`, or begins where there is none yet. Ctrl-C and SIGTERM end it early, with a checkpoint. A loss that
    is not finite, too many bad samples and lack of memory are UserErrors and leave `last/` as it was. The global random
    generators are seeded anew at every step.
    """
    with stop_requests() as stop, explained(config.batch_size, config.accumulation), reproducible(device):
        run = _Run(system, data, config, out, device, validate)
        if resume and checkpoint.has_state(out):
            run.restore()
        try:
            return run.train(stop)
        finally:
            run.close()


class _Run:
    """The state of one run."""

    def __init__(
        self,
        system: System,
        data: Data,
        config: TrainingConfig,
        out: Path,
        device: torch.device,
        validate: Callable[[], Validation] | None,
    ) -> None:
        self.system, self.module = system, cast(nn.Module, system)
        self.data, self.config, self.out, self.validate = data, config, out, validate
        self.total = config.epochs * data.updates if config.steps is None else config.steps
        dtype = choose_dtype(config.precision, device)
        self.optimizer = make_optimizer(self.module.to(device), config.optimizer)
        self.updater = Updater(
            system,
            self.optimizer,
            device=device,
            dtype=dtype,
            weights=config.weights,
            clip_norm=config.clip_norm,
            seed=config.seed,
        )
        self.bad = BadSamples(out, on_bad=config.on_bad, max_share=config.max_bad_share, samples=data.samples)
        self.window, self.watch, self.pace = Window(), MatchingWatch(), Pace()
        self.step = 0
        self.saved = -1  # step of the last full checkpoint
        self.validated = 0  # step of the last validation
        self.best: float | None = None
        self.log_size = 0
        self.log: MetricsLog | None = None
        self.reporter: Reporter | None = None
        self.saved_at = self.mark = time.monotonic()

    def train(self, stop: StopRequest) -> Result:
        """From the current step to the last."""
        if distributed.is_main():
            self.log = MetricsLog(self.out, step=self.step, size=self.log_size)
        self.module.train()
        groups = self._announced(self.data.groups(self.step, self.total))
        self.reporter = Reporter(done=self.step, total=self.total, updates=self.data.updates)
        stopping = False
        while True:
            ended = self.step % self.data.updates == 0 or self.step == self.total
            if ended and self.step > self.validated and not stopping:
                self._finish_epoch()
            if stopping or self.step == self.total:
                break
            stopping = self._advance(next(groups), stop)
            self._save_if_due()
        self._keep()
        if stopping:
            distributed.say(f"stopped after step {self.step}, with a checkpoint in {self.out}")
        return Result(self.step, not stopping, self.best)

    def close(self) -> None:
        """Close the log and the progress bar."""
        for part in (self.log, self.reporter):
            if part is not None:
                part.close()

    # --- one step -----------------------------------------------------------------------------------------------------

    def _clock(self) -> Clock:
        return Clock(self.step, self.total, self.step / self.data.updates)

    def _advance(self, loaded: list[Loaded], stop: StopRequest) -> bool:
        """One optimizer step; whether any rank was asked to stop."""
        batches = [part.batch for part in loaded]
        samples = sum(map(len, batches))
        bad = [item for part in loaded for item in part.bad]
        self.bad.take(bad, samples + len(bad))
        if errors := self._errors(loaded):
            raise UserError(errors[0])
        rate = learning_rate(self.step, self.total, self.config.optimizer.lr, self.config.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        means = self.updater.update(batches, self._clock())
        self.step += 1
        self.window.add(means)
        self.pace.take(time.monotonic() - self.mark, samples * distributed.world_size())
        self.mark = time.monotonic()
        if self.step % self.config.log_steps == 0 or self.step == self.total:
            self._log(rate)
        if self.reporter is not None:
            self.reporter.show(self.step, float(means["loss"]), self.pace)
        return distributed.total_counts({"stop": int(bool(stop))})["stop"] > 0

    def _errors(self, loaded: list[Loaded]) -> list[str]:
        """What kept any rank from loading these micro-batches."""
        own = [part.error for part in loaded if part.error is not None]
        if not distributed.total_counts({"errors": len(own)})["errors"]:
            return []
        return list(itertools.chain.from_iterable(distributed.collect(own)))

    def _log(self, rate: float) -> None:
        """The means since the last line."""
        line = {"step": self.step, "epoch": self.step / self.data.updates, **self.window.values(), "lr": rate}
        if self.log is not None:
            self.log.write({**line, "samples_per_second": self.pace.rate})
            self.watch.look(self.window.means, self.window.steps)
        self.window = Window()

    def _announced(self, groups: Iterator[list[Loaded]]) -> Iterator[list[Loaded]]:
        """The same micro-batches, after a rehearsal of the first step has told the user what the run will take."""
        first = next(groups, None)
        if first is None or self._errors(first):
            return groups if first is None else itertools.chain([first], groups)
        read, seconds = self._rehearsed(first, groups)
        lines = estimate.describe(
            self.module,
            self.out,
            steps=self.total - self.step,
            updates=self.data.updates,
            samples=self.data.samples,
            seconds=seconds,
        )
        for line in lines:
            distributed.say(line)
        self.mark = time.monotonic()
        return itertools.chain(read, groups)

    def _rehearsed(self, first: list[Loaded], groups: Iterator[list[Loaded]]) -> tuple[list[list[Loaded]], float]:
        """What was read meanwhile, and the seconds of a step with its data.

        The first rehearsals are slow, as all that is made once is made there, and find data that was read ahead: the
        median of the second half counts. They end after a few seconds, so that no large step is made many times, nor a
        second time where the first took so long that its surplus is small.
        """
        read, seconds, began = [first], list[float](), time.monotonic()
        for _ in range(min(estimate.REHEARSALS, max(2, (self.total - self.step) // 10))):
            start = time.monotonic()
            self.updater.rehearse([part.batch for part in read[-1]], self._clock())
            following = next(groups, None)
            seconds.append(time.monotonic() - start)
            if following is None:
                break
            read.append(following)
            patience = estimate.PATIENCE if len(seconds) > 1 else 10 * estimate.PATIENCE
            late = time.monotonic() - began > patience
            if distributed.total_counts({"late": int(late)})["late"] or self._errors(following):
                break
        return read, statistics.median(seconds[len(seconds) // 2 :])

    # --- what is kept -------------------------------------------------------------------------------------------------

    def _finish_epoch(self) -> None:
        """Validate, keep the best, write a checkpoint."""
        if self.validate is not None:
            self.module.eval()
            found = self.validate()
            self.module.train()
            if self.log is not None:
                named = {f"val/{name}": value for name, value in found.metrics.items()}
                self.log.write({"step": self.step, "epoch": self.step / self.data.updates, **named})
            if self.best is None or math.isnan(self.best) or found.score > self.best:
                self.best = found.score
                if distributed.is_main():
                    checkpoint.export(self.system.model, self.out / "best", companions=self.out)
                    checkpoint.write_json(self.out / "best" / "score.json", {"step": self.step, "score": self.best})
        self.validated = self.step
        self._keep()

    def _keep(self) -> None:
        """The full state, and the model ready to load."""
        if self.saved == self.step:
            return
        self._save()
        if distributed.is_main():
            checkpoint.export(self.system.model, self.out)
            checkpoint.export_training_state(self.module, self.out)
        self.saved = self.step

    def _save_if_due(self) -> None:
        steps, minutes = self.config.checkpoint_steps, (time.monotonic() - self.saved_at) / 60
        if (steps and self.step % steps == 0) or minutes >= self.config.checkpoint_minutes:
            self._save()

    def _save(self) -> None:
        """Write `last/`. All ranks hold the same state, so the main one writes and nobody waits."""
        if self.log is not None:
            state = {
                "step": self.step,  # also the position in the data: epoch and update follow from it
                "samples": self.data.samples,
                "updates": self.data.updates,
                "validated": self.validated,
                "best": self.best,
                "log_size": self.log.size,
                "system": self.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scaler": self.updater.scaler.state_dict(),
                "window": self.window.state(),
                "watch": self.watch.steps,
                "bad": self.bad.state(),
            }
            checkpoint.save_state(self.out, state)
        self.saved_at = self.mark = time.monotonic()

    def restore(self) -> None:
        """Go on from `last/`."""
        state = checkpoint.load_state(self.out)
        try:
            self._require_same_data(state)
            self._take(state)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else one_line(error)
            raise UserError(
                f"{checkpoint.state_file(self.out)} does not fit this run ({what}): remove it to begin the run anew"
            ) from error
        distributed.say(f"resuming {self.out} after step {self.step}")

    def _require_same_data(self, state: Mapping[str, Any]) -> None:
        """The position in the data is a number of steps, which means nothing in other data."""
        for name, now in (("samples", self.data.samples), ("updates", self.data.updates)):
            if int(state[name]) != now:
                raise UserError(
                    f"{self.out} had {state[name]} {name} per epoch and there are {now} now: resume with the same data "
                    "and the same batch_size x accumulation x processes"
                )
        if not 0 <= int(state["step"]) <= self.total:
            raise ValueError(f"it is after step {state['step']} of {self.total}")

    def _take(self, state: Mapping[str, Any]) -> None:
        """The state of a run as `_save` wrote it."""
        self.module.load_state_dict(state["system"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updater.scaler.load_state_dict(state["scaler"])
        self.window.restore(state["window"])
        self.bad.restore(state["bad"])
        self.watch.steps, self.log_size = int(state["watch"]), int(state["log_size"])
        self.step, self.validated = int(state["step"]), int(state["validated"])
        self.best = None if state["best"] is None else float(state["best"])
