"""What the commands print: results on stdout; messages and progress on stderr."""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

Show = Callable[[str, str, int, int | None], None]  # stage, unit, done, total
SILENCE = 30.0  # seconds between lines where stderr is no terminal


def speaks() -> bool:
    """Whether this is the one of several processes (as torchrun starts them) that tells the user anything."""
    return os.environ.get("RANK", "0") == "0"


def show(result: object, text: str, as_json: bool) -> None:
    """The result of a command: text for people or JSON for machines."""
    if speaks():
        print(json.dumps(result, ensure_ascii=False, indent=2) if as_json else text)


class Messages(logging.Handler):
    """Log records as lines: `warning: ...` and the like, plain text for what is only told."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        print(text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}", file=sys.stderr)


class Rate(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} {task.fields['unit']}/s" if task.speed else "")


@contextmanager
def progress() -> Iterator[Show]:
    """Bars with rate and time left, one for each stage; a line now and then where stderr is no terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        stages: dict[str, int] = {}

        def update(stage: str, unit: str, done: int, total: int | None) -> None:
            if stage not in stages:
                stages[stage] = bars.add_task(stage, total=total, unit=unit)
            bars.update(stages[stage], completed=done, total=total)  # type: ignore[arg-type]

        yield update


def _lines() -> Show:
    spoken = time.monotonic()

    def say(stage: str, unit: str, done: int, total: int | None) -> None:
        nonlocal spoken
        if time.monotonic() - spoken > SILENCE:
            spoken = time.monotonic()
            print(f"{stage}: {done:,}{'' if total is None else f' of {total:,}'} {unit}", file=sys.stderr)

    return say
