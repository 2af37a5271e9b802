"""How far a long task has come, told to whoever shows it."""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple


class Progress(NamedTuple):
    """One stage of a task. `total` is None where it is not known before the end."""

    stage: str
    unit: str  # what is counted: images, texts, queries, pairs
    done: int
    total: int | None
    seconds: float

    @property
    def rate(self) -> float:
        """Units per second since the stage began."""
        return self.done / max(self.seconds, 1e-9)


Report = Callable[[Progress], None]


class Stages:
    """Counts and times the stages of one task, one after the other."""

    def __init__(self, report: Report | None) -> None:
        self.report = report
        self.seconds: dict[str, float] = {}  # stage -> time taken
        self.done: dict[str, int] = {}  # stage -> units done

    def start(self, stage: str, unit: str, total: int | None = None) -> None:
        """Begin a stage."""
        self.stage, self.unit, self.total, self.began = stage, unit, total, perf_counter()
        self.add(0)

    def add(self, count: int) -> None:
        """`count` more units of the running stage are done."""
        self.done[self.stage] = self.done.get(self.stage, 0) + count
        self.seconds[self.stage] = perf_counter() - self.began
        if self.report is not None:
            self.report(Progress(self.stage, self.unit, self.done[self.stage], self.total, self.seconds[self.stage]))
