"""Progress on stderr: a bar with rate and time left on a terminal, a line now and then elsewhere."""

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from alignfuse.training import distributed

SILENCE = 30.0  # seconds between lines where stderr is not a terminal
MEMORY = 0.95  # weight of the past in the rate


def duration(seconds: float) -> str:
    """A time span as a person would say it: 42 s, 7 min, 3 h 5 min, 2 d 4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


class Pace:
    """Seconds per step, smoothed; time that passes between steps (validation, checkpoints) is not counted."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.samples: float = 0.0

    def take(self, seconds: float, samples: int) -> None:
        """One step took so long for so many samples of all ranks."""
        memory = 0.0 if self.seconds is None else MEMORY
        self.seconds = memory * (self.seconds or 0.0) + (1 - memory) * seconds
        self.samples = memory * self.samples + (1 - memory) * samples

    @property
    def rate(self) -> float:
        """Samples per second."""
        return self.samples / self.seconds if self.seconds else 0.0


class Reporter:
    """Shows the main process's progress."""

    def __init__(self, *, done: int, total: int, updates: int) -> None:
        self.total, self.updates = total, updates
        self.spoken = time.monotonic()
        self.bar: Progress | None = None
        if distributed.is_main() and sys.stderr.isatty():
            self.bar = Progress(
                TextColumn("{task.description}"), BarColumn(), console=Console(stderr=True), transient=True
            )
            self.task = self.bar.add_task("", total=total, completed=done)
            self.bar.start()

    def show(self, step: int, loss: float, pace: Pace) -> None:
        """After each step."""
        now = time.monotonic()
        due = now - self.spoken > SILENCE or step in (1, self.total)
        if self.bar is None and not due:
            return
        text = (
            f"step {step}/{self.total}  epoch {step / self.updates:.1f}  loss {loss:.4f}  "
            f"{pace.rate:.1f} pairs/s  {duration((self.total - step) * (pace.seconds or 0.0))} left"
        )
        if self.bar is None:
            distributed.say(text)
            self.spoken = now
        else:
            self.bar.update(self.task, completed=step, description=text)

    def close(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()
