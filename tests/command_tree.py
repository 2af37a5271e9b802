"""Every command of the command line, as its parser has them."""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from alignfuse.cli import app


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, below in command.commands.items():
        yield from leaves(below, (*path, name))


COMMANDS = dict(leaves(get_command(app)))
