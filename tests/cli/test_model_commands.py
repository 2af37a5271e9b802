"""From pairs to a searchable model by commands alone, as a user goes."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import alignfuse
from alignfuse.data.readers import read_pairs
from alignfuse.data.splits import split_records
from alignfuse.data.tokenizer import Tokenizer
from tests.cli.conftest import SETTINGS, Run

ROOT = Path(__file__).resolve().parents[2]
IMAGES = 28


def test_pretrain_leaves_a_model_that_loads(trained: Path) -> None:
    lines = [json.loads(line) for line in (trained / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3]
    pipe = alignfuse.load(trained)
    assert pipe.embed_texts(["a red ring"]).norm(dim=1).item() == pytest.approx(1, abs=1e-5)


def test_set_changes_the_settings_of_the_run(trained: Path) -> None:
    settings = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    assert settings["training"]["steps"] == 3
    assert settings["training"]["batch_size"] == 8


def test_a_wrong_setting_names_the_nearest(run: Run, scenes: Path, tmp_path: Path) -> None:
    outcome = run("pretrain", "albef", "--data", scenes, "--out", tmp_path / "a", "--set", "training.optimiser.lr=1")
    assert outcome.code == 2
    assert "'training.optimizer'" in outcome.err
    assert not (tmp_path / "a").exists()


def test_pretrain_says_what_is_missing(run: Run, scenes: Path) -> None:
    outcome = run("pretrain", "--data", scenes)
    assert outcome.code == 2
    assert "--out" in outcome.err


def test_a_run_is_never_lost_by_a_second_one(run: Run, scenes: Path, trained: Path) -> None:
    before = (trained / "model.safetensors").read_bytes()
    outcome = run("pretrain", "albef", "--data", scenes, "--out", trained, *SETTINGS)
    assert outcome.code == 2
    assert "--overwrite" in outcome.err
    assert (trained / "model.safetensors").read_bytes() == before


def test_base_size_on_a_cpu_asks_first(run: Run, scenes: Path, tmp_path: Path) -> None:
    options = ("--data", scenes, "--out", tmp_path / "base", "--size", "base", "--device", "cpu")
    outcome = run("pretrain", "albef", *options)
    assert outcome.code == 2
    assert "--yes" in outcome.err


@pytest.mark.parametrize("other", [("--set", "steps=9"), ("--size", "toy"), ("--init", "x"), ("--caption-field", "x")])
def test_resume_takes_no_other_settings(run: Run, trained: Path, other: tuple[str, str]) -> None:
    outcome = run("pretrain", "--resume", trained, *other)
    assert outcome.code == 2
    assert "--resume takes all from the run" in outcome.err


def test_a_pickle_of_more_than_tensors_opens_on_request(run: Run, scenes: Path, trained: Path, tmp_path: Path) -> None:
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(trained / name, tmp_path)
    content = {"model": load_file(trained / "model.safetensors"), "args": argparse.Namespace(lr=0.1)}
    torch.save(content, tmp_path / "weights.pth")
    command = ("pretrain", "albef", "--data", scenes, "--init-text", tmp_path / "weights.pth", *SETTINGS)
    refused = run(*command, "--out", tmp_path / "refused")
    assert refused.code == 2
    assert "weights.pth: holds more than tensors" in refused.err
    assert "--trust" in refused.err
    assert run(*command, "--out", tmp_path / "run", "--trust").code == 0


def test_resume_of_a_finished_run_changes_nothing(run: Run, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # the run knows where its data lies
    before = load_file(trained / "model.safetensors")
    assert run("pretrain", "--resume", trained, "--json").json()["step"] == 3
    after = load_file(trained / "model.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_stopped_run_ends_with_130_and_resumes(
    run: Run, scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alignfuse.training import loop

    take = loop.Pace.take

    def interrupted(*arguments: object) -> None:
        monkeypatch.setattr(loop.Pace, "take", take)
        os.kill(os.getpid(), 2)  # Ctrl-C during the first step

    monkeypatch.setattr(loop.Pace, "take", interrupted)
    out = tmp_path / "run"
    stopped = run("pretrain", "albef", "--data", scenes, "--out", out, *SETTINGS)
    assert stopped.code == 130
    assert f"go on with: alignfuse pretrain --resume {out}\n" in stopped.err
    assert run("pretrain", "--resume", out, "--json").json() | {"best": None} == {
        "out": str(out), "step": 3, "finished": True, "best": None,
    }  # fmt: skip


def test_vocab_learns_from_the_training_captions(run: Run, scenes: Path, tmp_path: Path) -> None:
    out = tmp_path / "tokenizer.json"
    result = run("vocab", scenes, "--out", out, "--size", 150, "--json").json()
    assert result == {"file": str(out), "vocab_size": Tokenizer.from_file(out).vocab_size, "captions": 24 * 5}
    assert 100 < result["vocab_size"] <= 150
    assert run("vocab", scenes, "--out", out).code == 2  # not over something that is there


def test_evaluation_names_all_that_its_numbers_depend_on(run: Run, scenes: Path, trained: Path) -> None:
    command = ("evaluate", "retrieval", "--model", trained, "--data", scenes)
    result = run(*command, "--split", "all", "--k", 4, "--json").json()
    assert (result["unit"], result["split"], result["checkpoint"]) == ("percent", "all", str(trained))
    assert result["k"] == {"image_to_text": 4, "text_to_image": 4}
    assert result["resolution"] == [32, 32]
    assert (result["counts"]["images"], result["counts"]["texts"]) == (IMAGES, 5 * IMAGES)
    assert run(*command, "--json").json()["split"] == "test"
    table = run(*command, "--score", "itc")
    assert "split test: 2 images, 10 texts" in table.out
    assert "100.0 %" in table.out  # R@10 among ten texts


def test_evaluation_on_a_split_that_is_not_there(run: Run, scenes: Path, trained: Path) -> None:
    outcome = run("evaluate", "retrieval", "--model", trained, "--data", scenes, "--split", "tset")
    assert outcome.code == 2
    assert "train (24 images), val (2 images), test (2 images)" in outcome.err


def test_pairs_without_splits_are_cut_as_in_training(run: Run, scenes: Path, trained: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in scenes.read_text(encoding="utf-8").splitlines()]
    plain = scenes.with_name("plain.jsonl")
    plain.write_text("".join(json.dumps({**row, "split": None}) + "\n" for row in rows), encoding="utf-8")
    settings = json.loads((trained / "config.json").read_text(encoding="utf-8"))
    model = shutil.copytree(trained, tmp_path / "model")
    records = read_pairs(plain).records
    for share in (0.0, 0.05, 0.3):
        settings["data"]["held_out"] = share
        (model / "config.json").write_text(json.dumps(settings), encoding="utf-8")
        val = split_records(records, held_out=share).get("val", [])
        outcome = run("evaluate", "retrieval", "--model", model, "--data", plain, "--k", 1, "--json")
        if val:
            assert (outcome.json()["split"], outcome.json()["counts"]["images"]) == ("val", len(val))
        else:
            assert f"no split 'test' in the data, which has no split column; it holds train ({IMAGES} im" in outcome.err
    assert run("evaluate", "retrieval", "--model", model, "--data", plain, "--split", "tset").code == 2


def test_search_in_an_embedding_file_equals_search_in_the_pairs(
    run: Run, scenes: Path, trained: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    written = run("embed", scenes, "--model", trained, "--out", index, "--json").json()
    assert (written["kind"], written["count"], written["width"]) == ("image", IMAGES, 64)
    command = ("search", "a red ring", "--model", trained, "--k", 3, "--json", "--in")
    hits = run(*command, index).json()
    assert [hit["id"] for hit in run(*command, scenes).json()] == [hit["id"] for hit in hits]
    assert [hit["itm"] for hit in hits] == sorted((hit["itm"] for hit in hits), reverse=True)
    shown = run("search", "a red ring", "--model", trained, "--in", index, "--k", 3).out.splitlines()
    assert [line.split()[-1] for line in shown] == [hit["image"] for hit in hits]


def test_an_index_is_replaced_on_request(run: Run, scenes: Path, trained: Path, tmp_path: Path) -> None:
    command = ("embed", scenes, "--model", trained, "--out", tmp_path / "index")
    assert run(*command).code == 0
    refused = run(*command, "--texts")
    assert refused.code == 2
    assert "index is not empty: choose another --out, or replace what is there with --overwrite" in refused.err
    assert run(*command, "--texts", "--overwrite", "--json").json()["kind"] == "text"


def test_an_index_of_another_model_is_refused(run: Run, scenes: Path, trained: Path, tmp_path: Path) -> None:
    assert run("embed", scenes, "--model", trained, "--out", tmp_path / "index").code == 0
    other = tmp_path / "other"
    assert run("pretrain", "albef", "--data", scenes, "--out", other, *SETTINGS, "--set", "steps=1").code == 0
    outcome = run("search", "a red ring", "--model", other, "--in", tmp_path / "index")
    assert outcome.code == 2
    assert "embed again" in outcome.err


def test_search_by_image_finds_itself_first(run: Run, scenes: Path, trained: Path) -> None:
    folder = scenes.parent / "images" / "train"
    image = folder / "train-000003.png"
    (hit, *_) = run("search", "--image", image, "--model", trained, "--in", folder, "--json").json()
    assert hit["image"] == str(image)
    assert hit["itc"] == pytest.approx(1, abs=1e-5)
    among_texts = run("search", "--image", image, "--model", trained, "--in", scenes, "--texts", "--k", 2, "--json")
    assert all("caption" in hit for hit in among_texts.json())


def test_search_reads_pairs_with_columns_of_any_name(run: Run, scenes: Path, trained: Path) -> None:
    rows = [json.loads(line) for line in scenes.read_text(encoding="utf-8").splitlines()]
    odd = scenes.with_name("odd.jsonl")
    odd.write_text("".join(json.dumps({"a": row["image"], "b": "a red ring"}) + "\n" for row in rows), encoding="utf-8")
    command = ("search", "a red ring", "--model", trained, "--in", odd, "--texts", "--k", 1)
    refused = run(*command)
    assert refused.code == 2
    assert "name it with --image-field" in refused.err
    (hit,) = run(*command, "--image-field", "a", "--caption-field", "b", "--json").json()
    assert hit["caption"] == "a red ring"


def test_search_needs_one_query(run: Run, scenes: Path, trained: Path) -> None:
    assert run("search", "--model", trained, "--in", scenes).code == 2
    assert run("search", "a", "--image", "b.png", "--model", trained, "--in", scenes).code == 2


def test_match_gives_the_scores_of_the_pipeline(run: Run, scenes: Path, trained: Path) -> None:
    image = scenes.parent / "images" / "test" / "test-000000.png"
    texts = ["a red ring", "a blue square"]
    rows = run("match", image, *texts, "--model", trained, "--json").json()
    expected = alignfuse.load(trained).match([image], texts)
    assert [row["text"] for row in rows] == texts
    assert [row["itm"] for row in rows] == pytest.approx([fit.itm for fit in expected], abs=1e-5)
    assert [row["probability"] for row in rows] == pytest.approx([fit.probability for fit in expected], abs=1e-5)


@pytest.mark.parametrize("text", ["", " \t"])
def test_an_empty_text_is_refused_before_the_model_is_loaded(run: Run, tmp_path: Path, text: str) -> None:
    for command in (("match", "boat.jpg", "a boat", text), ("search", text, "--in", "photos")):
        outcome = run(*command, "--model", tmp_path)
        assert (outcome.code, outcome.out) == (2, "")
        assert "is empty: there is nothing to compare" in outcome.err


def test_convert_makes_a_directory_that_loads(run: Run, shared: Path, tmp_path: Path) -> None:
    out = tmp_path / "albef"
    report = run("convert", "albef", shared / "parity/albef/pretrain/checkpoint.pth", out, "--json").json()
    assert report["missing"] == []
    assert len(report["loaded"]) > 100
    assert load_file(out / "model.safetensors").keys() >= set(report["loaded"])
    again = run("convert", "albef", shared / "parity/albef/pretrain/checkpoint.pth", out)
    assert again.code == 2
    assert "not empty: choose another folder, or replace the model there with --overwrite" in again.err


def test_the_package_runs_as_a_module() -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    result = subprocess.run(
        [sys.executable, "-m", "alignfuse", "search"], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert "Missing option" in result.stderr
