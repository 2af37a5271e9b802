"""What the README lists exists, and what exists is listed: the folders."""

import re

from tests.architecture.source import PACKAGE, ROOT

LINE = re.compile(r"^- `([\w.]+)/` - \S.*$", re.MULTILINE)
PRIVATE = {"runs", "build", "dist"}  # made by commands, not tracked


def section(start: str, end: str) -> list[str]:
    """Folders of the lines between two words of the README, in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return LINE.findall(text.split(start)[1].split(end)[0])


def test_one_line_per_folder_of_the_package() -> None:
    folders = [folder.name for folder in PACKAGE.iterdir() if folder.is_dir() and folder.name != "__pycache__"]
    assert sorted(section("## Map", "Beside it:")) == sorted(folders)


def test_one_line_per_folder_beside_it() -> None:
    folders = [folder.name for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".")]
    assert sorted(section("Beside it:", "`make test`")) == sorted(set(folders) - PRIVATE)
