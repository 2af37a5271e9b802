"""The long run on generated scenes leaves a curve, and says where it ended."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alignfuse.recipes.pretrain import PretrainRun
from benchmarks import world_long


@pytest.mark.parametrize("negatives", ["mined", "random"])
def test_a_run_leaves_its_curve(
    negatives: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(world_long, "TRAIN", 256)
    monkeypatch.setattr(world_long, "TEST", 40)
    monkeypatch.setattr(world_long, "PAIRS", 80)
    recipe, threads = world_long.recipe, torch.get_num_threads()

    def alone(pairs: Path, steps: int, negatives: str) -> PretrainRun:
        run = recipe(pairs, steps, negatives)
        return replace(run, training=replace(run.training, workers=0))

    monkeypatch.setattr(world_long, "recipe", alone)
    out = tmp_path / negatives
    monkeypatch.setattr("sys.argv", ["", str(out), "--negatives", negatives, "--steps", "4", "--threads", str(threads)])
    world_long.main()
    last = json.loads(capsys.readouterr().out)
    assert {"masked words", "masked words, text alone", "one-word pairs", "itc image to text R@1"} <= set(last)
    assert json.loads((out / "config.json").read_text())["objective"]["negatives"] == negatives
    curve = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    validated = [line["step"] for line in curve if any("one-word pairs" in name for name in line)]
    assert validated == [2, 4]  # 256 scenes in batches of 128
