"""The learning rate of each step: linear warm-up, then cosine. A pure function of the step, so nothing is saved."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Warm-up and cosine. `start` and `end` are shares of the peak rate, `optimizer.lr`."""

    warmup: int | float = 1000  # steps, or below 1 a share of all steps; at most half of all steps
    start: float = 0.1
    end: float = 0.1

    def __post_init__(self) -> None:
        if self.warmup < 0 or (isinstance(self.warmup, float) and self.warmup >= 1 and not self.warmup.is_integer()):
            raise ValueError(f"warmup is a number of steps or a share below 1, not {self.warmup}")
        if self.start < 0 or self.end < 0:
            raise ValueError(f"start and end are shares of the peak rate, not {self.start} and {self.end}")


def warmup_steps(config: ScheduleConfig, total_steps: int) -> int:
    """Steps of warm-up: as configured, cut to half of a short run."""
    wanted = config.warmup if config.warmup >= 1 else config.warmup * total_steps
    return min(round(wanted), total_steps // 2)


def learning_rate(step: int, total_steps: int, peak: float, config: ScheduleConfig) -> float:
    """The rate of the update that follows `step` updates: the start at 0, the peak when warm-up ends."""
    warmup = warmup_steps(config, total_steps)
    if step < warmup:
        return peak * (config.start + (1 - config.start) * step / warmup)
    done = min(1.0, (step - warmup) / max(1, total_steps - warmup))
    return peak * (config.end + (1 - config.end) * (1 + math.cos(math.pi * done)) / 2)
