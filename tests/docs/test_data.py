"""docs/data.md: its examples are read as it says, its tables are those of the code."""

import re
from pathlib import Path

import pytest
from PIL import Image

from alignfuse.config import override
from alignfuse.data.augment import AugmentConfig
from alignfuse.data.randaugment import OPERATIONS
from alignfuse.data.readers import OPENERS, read_pairs
from alignfuse.data.readers.fields import USUAL_NAMES
from alignfuse.data.records import ProblemKind
from alignfuse.data.splits import SPELLINGS
from alignfuse.recipes.albef import pretrain
from alignfuse.recipes.pretrain import DataConfig
from tests.docs.markdown import ROOT, Block, blocks, section, table
from tests.docs.play import bash, console, install

PAGE = ROOT / "docs/data.md"
EXAMPLES = [block.file for block in blocks(PAGE) if block.file]
MADE = ["pairs.parquet", "beside", "shard-000000.tar"]  # by the blocks that are run
ENGLISH = {"boat.jpg": ("a red boat", "a boat on the water"), "tree.jpg": ("a tree",)}
GERMAN = {"boat.jpg": ("ein rotes Boot", "ein Boot auf dem Wasser"), "tree.jpg": ("ein Baum",)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the page was followed."""
    folder, programs = tmp_path_factory.mktemp("place"), tmp_path_factory.mktemp("programs")
    install(programs)
    (folder / "images").mkdir()
    for name in ENGLISH:
        Image.new("RGB", (20, 10)).save(folder / "images" / name)
    for block in blocks(PAGE):
        if block.file:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "bash":
            bash(block.text, folder, programs)
        elif block.language == "python":
            pytest.importorskip("pyarrow")
            bash(f"python - <<'END'\n{block.text}END", folder, programs)
    return folder


@pytest.mark.parametrize("name", [*EXAMPLES, *MADE])
def test_each_example_describes_the_two_images(place: Path, name: str) -> None:
    german = name == "languages.jsonl"
    pairs = read_pairs(place / name, caption_field="captions.de" if german else None)
    found = {Path(getattr(one.image, "name", one.image)).name: one.captions for one in pairs.records}
    assert found == (GERMAN if german else ENGLISH)
    assert pairs.problems == []


def test_an_example_of_every_kind_of_file() -> None:
    known = {suffix for suffix in OPENERS if suffix not in (".gz", ".tgz")}
    shown = {Path(name).suffix for name in [*EXAMPLES, *MADE]}
    named = set(re.findall(r"`(\.\w+)`", section(PAGE, "Formats")))
    assert known <= shown | named


@pytest.mark.parametrize("block", [block for block in blocks(PAGE) if block.language == "console"])
def test_commands_print_what_is_shown(place: Path, block: Block) -> None:
    console(block, place)


def test_usual_names_are_those_of_the_readers() -> None:
    rows = table(section(PAGE, "Columns"))
    assert {what: tuple(re.findall(r"`(\w+)`", cells[0])) for what, cells in rows.items()} == USUAL_NAMES
    assert all(cells[1] == f"`--{what}-field`" for what, cells in rows.items())


def test_spellings_of_splits_are_named() -> None:
    named = set(re.findall(r"`(\w+)`", section(PAGE, "Splits")))
    assert set(SPELLINGS) <= named


def test_every_problem_is_explained() -> None:
    rows = table(section(PAGE, "The check"))
    assert sorted(name.strip("` ") for key in rows for name in key.split(", ")) == sorted(ProblemKind.__args__)


def test_augmentation_is_as_described() -> None:
    text = section(PAGE, "Augmentation")
    config = AugmentConfig()
    assert (config.scale, config.flip, config.count, config.probability) == ((0.2, 1.0), 0.5, 2, 0.5)
    assert tuple(name for name in re.findall(r"`(\w+)`", text.split("None of them")[0])) == OPERATIONS


@pytest.mark.parametrize("change", re.findall(r"--set '?([^'`]+?)'?`", PAGE.read_text(encoding="utf-8")))
def test_every_setting_shown_can_be_set(change: str) -> None:
    run = pretrain(DataConfig(paths=("pairs.csv",)), size="toy")
    changed = override(run, [change])
    assert changed != run or change in ("start.vocab_size=10000",)  # the default, shown as such
