"""Errors that a user can mend."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """A user's mistake in one clear line: what, where (file and row) and the remedy. The command line exits with 2."""


def one_line(error: Exception) -> str:
    """The beginning of an error's text, which torch writes over many lines."""
    text = " ".join(str(error).split())
    return text if len(text) <= 200 else text[:200] + "..."


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Names the file in what is wrong with its content."""
    try:
        yield
    except (UserError, OSError, ValueError) as error:
        raise UserError(f"{file}: {error}") from error
