"""docs/retrieval.md: fields and settings are those of the code, the Python example runs."""

import contextlib
import json
import re

import pytest
from safetensors import safe_open

import alignfuse
from alignfuse.config import from_dict, override, to_dict
from alignfuse.data.readers import read_pairs
from alignfuse.data.splits import choose_split
from alignfuse.tasks.retrieval import RetrievalConfig
from tests.docs.conftest import Followed
from tests.docs.markdown import ROOT, blocks, section, table

pytestmark = pytest.mark.timeout(900)  # the first test that needs the followed guide waits for it
PAGE = ROOT / "docs/retrieval.md"


def keys(value: object) -> set[str]:
    """Names of all fields at any depth, without the stages that were timed."""
    if not isinstance(value, dict):
        return set()
    inner = (keys(below) for name, below in value.items() if name != "seconds")
    return set(value).union(*inner)


def test_the_python_example(followed: Followed, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = [block for block in blocks(PAGE) if block.language == "python"]
    with contextlib.chdir(followed.folder):
        exec(compile(example.text, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "20 images, 100 texts" in printed
    assert re.search(r"text to image +itc\+itm +8 ", printed)


def test_every_field_of_the_json_is_named(followed: Followed) -> None:
    pipe = alignfuse.load(followed.folder / "runs/mine")
    split, records = choose_split(read_pairs(followed.folder / "pictures").records, "test")
    report = pipe.evaluate_retrieval(records[:4], split=split, config=RetrievalConfig(k=2)).to_dict()
    rows = table(section(PAGE, "JSON"))
    named = set(re.findall(r"`([\w@+]+)`", section(PAGE, "JSON"))) - {"retrieval", "percent"}
    assert named == keys(report)
    assert [name.strip("` ") for key in rows for name in key.split(", ")] == list(report)


def test_every_bound_with_its_default() -> None:
    rows = table(section(PAGE, "Memory and time"))
    assert list(rows) == list(to_dict(RetrievalConfig()))
    for name, cells in rows.items():
        assert override(RetrievalConfig(), [f"{name}={cells[0].strip('`')}"]) == RetrievalConfig(), name


def test_header_and_lines_of_an_index(followed: Followed) -> None:
    text = section(PAGE, "Vectors: `alignfuse embed`")
    with safe_open(followed.folder / "pictures.index/embeddings.safetensors", framework="pt") as file:
        header, names = file.metadata(), list(file.keys())
    vectors, ids = text.split("- `ids.jsonl`")
    assert set(re.findall(r"`(\w+)`", vectors.split("Its header holds")[1])) == set(header)
    assert f"one tensor `{names[0]}`" in vectors
    line = json.loads((followed.folder / "pictures.index/ids.jsonl").read_text().splitlines()[0])
    assert set(line) <= set(re.findall(r"`(\w+)`", ids))


def test_scores_of_a_match(followed: Followed) -> None:
    pipe = alignfuse.load(followed.folder / "runs/mine")
    photo = followed.folder / "pictures/images/test/test-000000.png"
    alone, *_ = pipe.match([photo], ["a small red square"])
    both = pipe.match([photo], ["a small red square", "a large blue disc"])
    assert tuple(table(section(PAGE, "Match scores"))) == alone._fields
    assert -1 <= alone.itc <= 1 and 0 < alone.probability < 1
    assert both[0].probability == pytest.approx(alone.probability, abs=1e-5)


def test_scores_and_their_defaults() -> None:
    rows = table(section(PAGE, "Measuring: `alignfuse evaluate retrieval`"))
    assert [from_dict(RetrievalConfig, {"score": score}).score for score in rows] == list(rows)
    assert [score for score, cells in rows.items() if "default" in cells[1]] == [RetrievalConfig().score]
