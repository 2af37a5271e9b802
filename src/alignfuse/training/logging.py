"""Numbers of a run: metrics.jsonl, and TensorBoard events where it is installed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from alignfuse.files import writing
from alignfuse.training.step import Mean


class MetricsLog:
    """Appends to metrics.jsonl and TensorBoard; what a checkpoint does not know is dropped first (`step`, `size`)."""

    def __init__(self, out: Path, *, step: int = 0, size: int = 0) -> None:
        self.path = out / "metrics.jsonl"
        self.file = self.path.open("ab")
        self.file.truncate(min(size, self.path.stat().st_size))
        self.board = _board(out, step)

    @property
    def size(self) -> int:
        """Bytes written, which a checkpoint remembers."""
        return self.path.stat().st_size

    def write(self, line: Mapping[str, int | float]) -> None:
        """One line; its "step" places the other numbers on TensorBoard's axis."""
        with writing(self.path):
            self.file.write(json.dumps(line).encode() + b"\n")
            self.file.flush()
        for name, value in line.items():
            if self.board is not None and name != "step":
                self.board.add_scalar(name, value, line["step"])

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        if self.board is not None:
            self.board.close()


class Window:
    """Means over the steps since the last line of the log."""

    def __init__(self) -> None:
        self.steps = 0
        self.means: dict[str, Mean] = {}

    def add(self, means: Mapping[str, Mean]) -> None:
        """Take in one step."""
        self.steps += 1
        for name, mean in means.items():
            old = self.means.get(name, Mean(0.0, 0.0))
            self.means[name] = Mean(old.total + mean.total, old.terms + mean.terms)

    def values(self) -> dict[str, float]:
        """The means; what had no terms is left out."""
        return {name: float(mean) for name, mean in self.means.items() if mean.terms}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, so that a resumed run writes the same lines."""
        return {"steps": self.steps, "means": {name: list(mean) for name, mean in self.means.items()}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.steps = int(state["steps"])
        self.means = {name: Mean(*map(float, mean)) for name, mean in state["means"].items()}


def _board(out: Path, step: int) -> Any:
    """TensorBoard's writer, or None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(out), purge_step=step + 1)
