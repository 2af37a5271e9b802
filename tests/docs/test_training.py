"""docs/training.md: its tables hold every setting, metric and size, and its messages are the real ones."""

import json
import logging
import math
import re

import pytest
import torch

from alignfuse.config import override, to_dict
from alignfuse.data.tokenizer import TokenizerConfig
from alignfuse.errors import UserError
from alignfuse.recipes.albef import SIZES, pretrain
from alignfuse.recipes.pretrain import DataConfig, PretrainRun, StartConfig, ValidationConfig
from alignfuse.systems.albef import ALBEFTraining
from alignfuse.training.health import PATIENCE, MatchingWatch
from alignfuse.training.memory import explained
from alignfuse.training.settings import TrainingConfig
from alignfuse.training.step import Mean, Updater
from tests.docs.conftest import Followed
from tests.docs.markdown import ROOT, blocks, section, table

pytestmark = pytest.mark.timeout(900)  # the first test that needs the followed guide waits for it
PAGE = ROOT / "docs/training.md"
RUN = pretrain(DataConfig(paths=("pairs.csv",)), size="base")


def flat(values: dict[str, object], where: str) -> dict[str, object]:
    """Settings by their whole names."""
    found: dict[str, object] = {}
    for name, value in values.items():
        inner = flat(value, f"{where}.{name}") if isinstance(value, dict) and value else {f"{where}.{name}": value}
        found |= inner
    return found


def settings(run: PretrainRun) -> dict[str, object]:
    """Every setting of a run."""
    return flat(to_dict(run), "run")


@pytest.mark.parametrize(
    ("heading", "groups"),
    [
        ("Settings of training", {"training": TrainingConfig()}),
        ("Settings of the objectives", {"objective": ALBEFTraining()}),
        ("Settings of the start", {"start": StartConfig()}),
        ("Settings of texts and validation", {"text": TokenizerConfig(), "validation": ValidationConfig()}),
    ],
)
def test_a_table_holds_every_setting_with_its_default(heading: str, groups: dict[str, object]) -> None:
    rows = table(section(PAGE, heading))
    names = [name for group, config in groups.items() for name in flat(to_dict(config), group)]
    assert list(rows) == names
    for name, cells in rows.items():
        assert override(RUN, [f"{name}={cells[0].strip('`')}"]) == RUN, f"{name} is not {cells[0]} by default"


def test_what_the_sizes_change() -> None:
    rows = table(section(PAGE, "What the sizes change"))
    runs = {size: settings(pretrain(RUN.data, size=size)) for size in ("base", "small", "toy")}
    ours = [name for name in runs["base"] if not name.startswith("run.model.")]
    differ = [name for name in ours if len({str(run[name]) for run in runs.values()}) > 1]
    shown = {name: cells for name, cells in rows.items() if "." in name}
    assert list(shown) == [name.removeprefix("run.") for name in differ]
    for name, cells in shown.items():
        for size, cell in zip(runs, cells, strict=True):
            run = pretrain(RUN.data, size=size)
            assert override(run, [f"{name}={cell.strip('`')}"]) == run, f"{name} of {size} is not {cell}"


def test_sizes_of_the_models() -> None:
    text = section(PAGE, "What the sizes change")
    rows = table(text[text.index("| model |") :])
    for column, size in enumerate(("base", "small", "toy")):
        image, words, embed = SIZES[size].image, SIZES[size].text, SIZES[size].embed_dim
        cells = [cells[column] for cells in rows.values()]
        assert cells[0] == f"{image.image_size[0]} x {image.image_size[1]}"
        assert cells[1].split(",")[0] == str(image.patch_size)
        assert cells[2:5] == [
            f"{image.layers} x {image.width}",
            f"{words.layers} x {words.width}",
            f"{words.fusion_layers} x {words.width}",
        ]
        assert cells[5] == str(embed)


def test_the_log_holds_the_metrics_of_the_table(followed: Followed) -> None:
    lines = [json.loads(line) for line in (followed.folder / "runs/mine/metrics.jsonl").read_text().splitlines()]
    written = {name for line in lines for name in line}
    rows = table(section(PAGE, "Is it learning?"))
    assert {name.strip("` ") for key in rows for name in key.split(", ")} == written


def test_the_files_of_the_table_are_left(followed: Followed) -> None:
    rows = table(section(PAGE, "Checkpoints and resuming"))
    named = [name for key in rows for name in re.findall(r"[\w/]+(?:\.\w+)?", key.split(",")[0])]
    assert len(named) == len(rows)
    left = [name for name in named if name != "bad_samples.jsonl"]
    assert [name for name in left if not (followed.folder / "runs/mine" / name).exists()] == []


def shown(start: str) -> str:
    """The excerpt that begins so."""
    (text,) = [block.text.strip() for block in blocks(PAGE) if block.text.startswith(start)]
    return text


def test_the_warning_of_a_constant_answer(caplog: pytest.LogCaptureFixture) -> None:
    entropy = -math.log(1 / 3) / 3 - 2 * math.log(2 / 3) / 3
    means = {
        "loss/itm": Mean(entropy, 1),
        "itm_positive_accuracy": Mean(0, 10),
        "itm_negative_accuracy": Mean(20, 20),
    }
    with caplog.at_level(logging.WARNING):
        MatchingWatch().look(means, PATIENCE)
    assert caplog.messages == [shown("ITM has given")]


def test_the_message_of_a_loss_that_is_not_finite() -> None:
    updater = Updater.__new__(Updater)
    with pytest.raises(UserError) as error:
        updater._require_finite({"loss/itc": Mean(math.nan, 1)}, 120)
    assert str(error.value) == shown("step 120")


def test_the_message_of_too_little_memory() -> None:
    with pytest.raises(UserError) as error, explained(64, 1):
        raise torch.OutOfMemoryError
    assert str(error.value) == shown("out of memory")
