"""One optimizer step, in the order of the official ALBEF code.

    before_step                                   clamp the temperature, move the teacher
    teach, for all micro-batches                  the teacher's features: every micro-batch contrasts with all of them
    forward and backward, for each micro-batch    of sum of terms / number of terms of all micro-batches and ranks
    clip, optimizer.step
    after_step                                    fill the queues

A step's dropout is a function of (seed, step, rank): no generator's state has to survive a restart.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, cast

import numpy
import torch
from torch import Tensor, nn

from alignfuse.data.batch import Batch
from alignfuse.data.seeds import mix
from alignfuse.errors import UserError
from alignfuse.systems.draws import RandomDraws
from alignfuse.systems.protocols import Clock, Loss, Step, System
from alignfuse.training import distributed
from alignfuse.training.precision import autocast

OVERFLOWS = (
    50  # consecutive fp16 steps without a finite gradient after which training stops: the scaler halves each time
)


class Mean(NamedTuple):
    """A sum and what to divide it by."""

    total: float
    terms: float

    def __float__(self) -> float:
        return self.total / (self.terms or 1)


class Tally(NamedTuple):
    """What the forward passes of one step left behind."""

    losses: dict[str, Loss]
    metrics: dict[str, Loss]
    carries: list[dict[str, Tensor]]


class Updater:
    """Makes optimizer steps of a system on one device."""

    def __init__(
        self,
        system: System,
        optimizer: torch.optim.Optimizer,
        *,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
        weights: Mapping[str, float] | None = None,
        clip_norm: float | None = None,
        seed: int = 0,
    ) -> None:
        self.system = system
        self.wrapped = distributed.parallel(cast(nn.Module, system), device)
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
        self.device, self.dtype = device, dtype
        self.weights = dict(weights or {})
        self.clip_norm = clip_norm
        self.seed = seed
        self.overflows = 0

    def terms(self, batches: Sequence[Batch]) -> dict[str, int]:
        """Number of terms of each loss in these micro-batches of this rank."""
        counts: Counter[str] = Counter()
        for batch in batches:
            counts.update(self.system.terms(batch, draws(batch)))
        for name in self.weights:
            if name not in counts:
                raise UserError(f"there is no loss {name!r} to weigh; this system has {', '.join(counts)}")
        return dict(counts)

    def update(self, batches: Sequence[Batch], clock: Clock) -> dict[str, Mean]:
        """One optimizer step on the micro-batches of this rank.

        Gives the mean of each loss and of the system's metrics over all micro-batches and ranks. A loss or gradient
        that is not finite raises UserError before the weights are touched.
        """
        terms = distributed.total_counts(self.terms(batches))
        seed_everything(mix(self.seed, clock.step, distributed.rank()))
        self.system.before_step()
        tally = self._accumulate(batches, terms, clock)
        self.scaler.unscale_(self.optimizer)
        norm = self._clip()
        means = self._report(tally, terms, norm)
        self._require_finite(means, clock.step + 1)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.system.after_step(tally.carries)
        return means

    def rehearse(self, batches: Sequence[Batch], clock: Clock) -> None:
        """The work of a step without its effect, up to the numbers on the host: what moves weights is left out."""
        terms = distributed.total_counts(self.terms(batches))
        tally = self._accumulate(batches, terms, clock)
        self._report(tally, terms, self._clip())
        self.optimizer.zero_grad(set_to_none=True)

    def _accumulate(self, batches: Sequence[Batch], terms: Mapping[str, int], clock: Clock) -> Tally:
        """Gradients of all micro-batches."""
        batches = [batch.to(self.device) for batch in batches]
        with torch.no_grad(), autocast(self.device, self.dtype):
            lessons = [self.system.teach(batch) for batch in batches]
        losses: dict[str, Loss] = {}
        metrics: dict[str, Loss] = {}
        carries = []
        for own, batch in enumerate(batches):
            with distributed.local_gradients(self.wrapped, own + 1 < len(batches)):
                with autocast(self.device, self.dtype):
                    step: Step = self.wrapped(batch, lessons, own, clock, draws(batch))
                self.scaler.scale(self._objective(step.losses, terms)).backward()  # type: ignore[no-untyped-call]
            add(losses, step.losses)
            add(metrics, step.metrics)
            carries.append(step.carry)
        return Tally(losses, metrics, carries)

    def _objective(self, losses: Mapping[str, Loss], terms: Mapping[str, int]) -> Tensor:
        """This micro-batch's share of the weighted means. DDP divides by the number of ranks, hence the factor."""
        means = [self.weights.get(name, 1.0) * loss.total / max(1, terms[name]) for name, loss in losses.items()]
        return torch.stack(means).sum() * distributed.world_size()

    def _clip(self) -> Tensor:
        """The norm of the whole gradient, which is cut to `clip_norm`."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters])
        if self.clip_norm is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.clip_norm, norm)
        return norm

    def _report(self, tally: Tally, terms: Mapping[str, int], norm: Tensor) -> dict[str, Mean]:
        """All numbers of the step on the host, in the step's one synchronisation."""
        pairs = {**{f"loss/{name}": loss for name, loss in tally.losses.items()}, **tally.metrics}
        flat = torch.stack([number.to(self.device, torch.float32) for pair in pairs.values() for number in pair])
        *numbers, norm_value = torch.cat([distributed.total(flat), norm.float()[None]]).tolist()
        means = {name: Mean(*numbers[2 * i : 2 * i + 2]) for i, name in enumerate(pairs)}
        found = {name: int(means[f"loss/{name}"].terms) for name in tally.losses}
        if found != {name: terms[name] for name in tally.losses}:
            raise RuntimeError(f"the system announced {dict(terms)} terms, and its losses have {found}")
        whole = sum(self.weights.get(name, 1.0) * float(means[f"loss/{name}"]) for name in tally.losses)
        return {"loss": Mean(whole, 1), **means, "grad_norm": Mean(norm_value, 1)}

    def _require_finite(self, means: Mapping[str, Mean], step: int) -> None:
        """Stop before the weights are spoilt. In fp16 the scaler skips a step whose gradient overflows, for a while."""
        advice = "lower optimizer.lr, set clip_norm, or compute in precision=fp32"
        for name, mean in means.items():
            if name.startswith("loss/") and not math.isfinite(mean.total):
                raise UserError(f"step {step}: {name.removeprefix('loss/')} loss is {mean.total}; {advice}")
        finite = math.isfinite(means["grad_norm"].total)
        self.overflows = 0 if finite else self.overflows + 1
        if not finite and (not self.scaler.is_enabled() or self.overflows >= OVERFLOWS):
            raise UserError(f"step {step}: the losses are finite and their gradient is not; {advice}")


def draws(batch: Batch) -> RandomDraws:
    """The random choices for a batch, from its seeds."""
    if batch.seeds is None:
        raise ValueError("a batch for training needs seeds")
    return RandomDraws(batch.seeds)


def seed_everything(seed: int) -> None:
    """Restart the generators of Python, numpy and torch on all devices."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def add(sums: dict[str, Loss], more: Mapping[str, Loss]) -> None:
    """Add detached sums and counts by name."""
    for name, (total, count) in more.items():
        old = sums.get(name)
        new = Loss(total.detach(), count)
        sums[name] = new if old is None else Loss(old.total + new.total, old.count + new.count)
