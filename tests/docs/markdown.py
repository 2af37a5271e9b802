"""Reads our pages: fenced blocks and tables.

How a block is meant: ```bash and ```python are run; ```console holds commands after `$ ` with what they print; ```text
is an excerpt of what the command before it prints; a second word after the language is the name of a file to be written
(```csv captions.csv). Everything else, ```sh among it, is only read.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDER = re.compile(r"/\S*/(?=pictures/)")  # where the reader works
HASH = re.compile(r"\b[0-9a-f]{12}\b")
NUMBER = re.compile(r"-?\d[\d.,]*\d|-?\d")
UNIT = re.compile(r"\b0 (?:d|h|min|s|GB|MB)\b(?: 0 (?:h|min)\b)?")


class Block(NamedTuple):
    """One fenced block."""

    language: str
    file: str  # to be written
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 2)
        for found in FENCE.finditer(text)
    ]


def commands(page: Path) -> Iterator[list[str]]:
    """Words of every alignfuse command in a page's blocks, from `alignfuse` on."""
    for block in blocks(page):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if "alignfuse " in line and block.language != "text" else []
            for place, word in enumerate(words):
                if word.removeprefix(".venv/bin/") == "alignfuse":
                    yield words[place:]
                    break


def section(page: Path, heading: str) -> str:
    """The text under a heading, up to the next heading of any level."""
    text = page.read_text(encoding="utf-8")
    start = re.search(rf"^#+ {re.escape(heading)}\n", text, re.MULTILINE)
    assert start is not None, f"{page.name} has no heading {heading!r}"
    return re.split(r"^#+ ", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]


def table(text: str) -> dict[str, list[str]]:
    """Rows of the first table of a text without its head: the first cell without its backticks -> the other cells."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    found = {row[0].strip("`"): row[1:] for row in rows}
    assert len(found) == len(rows) > 0
    return found


def normal(line: str) -> str:
    """A line without what differs from run to run: numbers and their units, hashes, folders, the width of columns."""
    text = HASH.sub("0", FOLDER.sub("", " ".join(line.split())))
    return UNIT.sub("0", NUMBER.sub("0", text))


def missing(expected: str, output: str) -> list[str]:
    """Lines of an excerpt that the output does not hold in this order; `...` stands for anything."""
    rest = iter([normal(line) for line in output.splitlines()])
    return [line for line in expected.splitlines() if line.strip() not in ("", "...") and normal(line) not in rest]
