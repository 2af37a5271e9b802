"""How many steps of a run fit into a span of time on this machine: the schedule must know them before the first."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import NamedTuple

from alignfuse.recipes.pretrain import Corpus, PretrainRun, build, validation
from alignfuse.systems.protocols import Clock
from alignfuse.training import distributed
from alignfuse.training.optimizer import make_optimizer
from alignfuse.training.precision import choose_dtype
from alignfuse.training.step import Updater

WARM_UP = 3  # steps that are not measured


class Pace(NamedTuple):
    """What a run takes, in seconds."""

    step: float
    validation: float  # after each epoch
    updates: int  # steps of an epoch

    def steps(self, seconds: int | float) -> int:
        """Steps that fit, with the validations among them."""
        return max(1, int(seconds / (self.step + self.validation / self.updates)))


def measure(run: PretrainRun, corpus: Corpus, *, steps: int = 12, device: str = "auto") -> Pace:
    """Build the run, make a few steps and one validation, and throw all of it away but the corpus."""
    with distributed.processes(device) as place:
        with _silence():
            resolved, parts = build(run, corpus=corpus)
        training = resolved.training
        system = parts.system.to(place).train()
        updater = Updater(
            system,
            make_optimizer(system, training.optimizer),
            device=place,
            dtype=choose_dtype(training.precision, place),
            weights=training.weights,
            clip_norm=training.clip_norm,
            seed=training.seed,
        )
        began = 0.0
        for number, group in enumerate(islice(parts.loader.groups(0, WARM_UP + steps), WARM_UP + steps)):
            if number == WARM_UP:
                began = time.perf_counter()
            updater.update([part.batch for part in group], Clock(number, WARM_UP + steps, 0.0))
        step = (time.perf_counter() - began) / steps
        began = time.perf_counter()
        if parts.held_out:
            system.eval()
            validation(parts, resolved.validation, place)()
        return Pace(step, time.perf_counter() - began, parts.loader.updates)


@contextmanager
def _silence() -> Iterator[None]:
    """Without the messages that the run itself will give."""
    logger = logging.getLogger("alignfuse")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
