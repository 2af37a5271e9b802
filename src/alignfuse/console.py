"""What the commands print: results on stdout; messages and progress on stderr."""

import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


def show(result: object, text: str, as_json: bool) -> None:
    """The result of a command: text for people or JSON for machines."""
    print(json.dumps(result, ensure_ascii=False, indent=2) if as_json else text)


class Messages(logging.Handler):
    """Log records as lines: `warning: ...` and the like, plain text for what is only told."""

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        print(text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}", file=sys.stderr)


class Rate(ProgressColumn):
    """Units per second."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:.0f} {task.fields['unit']}/s" if task.speed else "")


@contextmanager
def progress(task: str, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A bar with rate and time left while the block runs; it yields what to call: `advance(done, total)`.

    Nothing is drawn where stderr is no terminal.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        number = bar.add_task(task, total=None, unit=unit)
        yield lambda done, total: bar.update(number, completed=done, total=total)
