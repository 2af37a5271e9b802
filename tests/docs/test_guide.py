"""docs/guide.md works when it is followed, and shows what it prints."""

import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

import alignfuse
from alignfuse.config import to_dict
from alignfuse.models.albef import ALBEF
from alignfuse.recipes.albef import SIZES
from alignfuse.recipes.pretrain import stored
from tests.docs.conftest import GUIDE, Followed
from tests.docs.markdown import Block, blocks, missing, section, table
from tests.docs.play import console

PAGE = blocks(GUIDE)
EXCERPTS = [
    (before, block) for before, block in pairwise(PAGE) if (before.language, block.language) == ("bash", "text")
]
pytestmark = pytest.mark.timeout(900)  # the first test waits until the whole page was followed
CONSOLES = [block for block in PAGE if block.language == "console"]


@pytest.mark.parametrize(("command", "excerpt"), EXCERPTS, ids=lambda block: f"line {block.line}")
def test_a_command_prints_what_is_shown(followed: Followed, command: Block, excerpt: Block) -> None:
    if excerpt.text.startswith("runs/"):  # what the command leaves, not what it prints
        names = [line.split()[0] for line in excerpt.text.splitlines()]
        assert [name for name in names if not (followed.folder / name).exists()] == []
        return
    output = dict(followed.printed)[command]
    assert missing(excerpt.text, output) == [], output


def test_python_prints_cosines_matches_and_hits(followed: Followed) -> None:
    printed = next(output for block, output in followed.printed if block.language == "python").splitlines()
    assert printed[0].startswith("tensor([[")
    assert sum(line.endswith("%") for line in printed) == 2
    assert sum(line.endswith(".png") for line in printed) == 3


@pytest.mark.parametrize("block", CONSOLES, ids=lambda block: f"line {block.line}")
def test_a_mistake_is_answered_as_shown(followed: Followed, block: Block) -> None:
    photo = "images/test/test-000000.png"
    tables = {
        "titles.csv": f"file;title\npictures/{photo};a boat\n",
        "moved.csv": f"image,caption\n{photo},a boat\n",
        "latin.csv": "image,caption\na.png,ein grünes Boot\n",
    }
    for name, text in tables.items():
        (followed.folder / name).write_bytes(text.encode("latin-1"))
    console(block, followed.folder)


def test_of_two_processes_one_speaks(followed: Followed) -> None:
    (output,) = [output for block, output in followed.printed if block.text.startswith("torchrun")]
    assert output.count("steps: 2, 4 for each epoch of 200 samples\n") == output.count("runs/two: 2 steps") == 1


def test_a_directory_can_be_moved(followed: Followed, tmp_path: Path) -> None:
    """What the page promises of a run directory: nothing in it that use needs points elsewhere."""
    shutil.copytree(followed.folder / "runs/mine/best", tmp_path / "elsewhere")
    assert alignfuse.load(tmp_path / "elsewhere").embed_texts(["a boat"]).shape == (1, 64)


def test_the_settings_of_the_commands_arrived(followed: Followed) -> None:
    run = stored(followed.folder / "runs/mine")
    assert to_dict(run)["training"]["epochs"] == 3
    assert stored(followed.folder / "runs/two").training.steps == 2


def test_sizes_are_those_of_the_recipes() -> None:
    rows = table(section(GUIDE, "3. Train"))
    assert list(rows) == list(SIZES)
    for name, config in SIZES.items():
        with torch.device("meta"):
            model = ALBEF(replace(config, text=replace(config.text, vocab_size=10_000)))
        count = sum(parameter.numel() for parameter in model.parameters())
        height, width = config.image.image_size
        assert rows[name][:2] == [f"{count / 1e6:.0f} million", f"{height} x {width}"]
