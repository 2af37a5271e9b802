"""A folder in which somebody followed docs/guide.md from top to bottom."""

import contextlib
import io
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image

from tests.docs.markdown import ROOT, Block, blocks
from tests.docs.play import bash, install

GUIDE = ROOT / "docs/guide.md"


@dataclass
class Followed:
    """What was left, and what each block printed."""

    folder: Path
    printed: list[tuple[Block, str]] = field(default_factory=list)

    def follow(self, block: Block, programs: Path) -> None:
        """Run a block of bash or Python."""
        if block.language == "bash":
            self.printed.append((block, bash(block.text, self.folder, programs)))
        if block.language == "python":
            output = io.StringIO()
            with contextlib.chdir(self.folder), contextlib.redirect_stdout(output):
                exec(compile(block.text, f"page, line {block.line}", "exec"), {})
            self.printed.append((block, output.getvalue()))


@pytest.fixture(scope="session")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Followed:
    """The guide, then the README, which builds on what it leaves."""
    folder, programs = tmp_path_factory.mktemp("guide"), tmp_path_factory.mktemp("programs")
    install(programs)
    Image.new("RGB", (60, 40), "red").save(folder / "boat.jpg")  # a picture of the reader's own
    guide = Followed(folder)
    for page in (GUIDE, ROOT / "README.md"):
        for block in blocks(page):
            guide.follow(block, programs)
    return guide
