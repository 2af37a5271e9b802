"""Files that a kill, a full disk or a wrong directory cannot spoil."""

import os
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from alignfuse.errors import UserError
from alignfuse.training import checkpoint


def test_state_survives_the_round_trip_without_pickled_code(tmp_path: Path) -> None:
    state = {"step": 3, "best": None, "system": {"w": torch.arange(3.0)}, "bad": {"seen": 2}, "window": [1.5, "x"]}
    checkpoint.save_state(tmp_path, state)
    found = checkpoint.load_state(tmp_path)
    assert torch.equal(found["system"]["w"], torch.arange(3.0))
    assert {name: found[name] for name in ("step", "best", "bad", "window")} == {
        name: state[name] for name in ("step", "best", "bad", "window")
    }


def test_a_foreign_or_damaged_state_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "last" / "state.pt"
    path.parent.mkdir()
    torch.save({"format": 1, "arguments": Namespace(lr=1)}, path)
    with pytest.raises(UserError, match="cannot read the checkpoint") as caught:
        checkpoint.load_state(tmp_path)
    assert "\n" not in str(caught.value)
    torch.save({"format": 99}, path)
    with pytest.raises(UserError, match="format 99"):
        checkpoint.load_state(tmp_path)
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(UserError, match="cannot read the checkpoint"):
        checkpoint.load_state(tmp_path)


def test_a_failed_write_keeps_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save_state(tmp_path, {"step": 1})

    def full_disk(value: object, path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError("PytorchStreamWriter failed writing file: No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(UserError, match=r"cannot write .*state\.pt \(.*GB free\); what stood there is kept"):
        checkpoint.save_state(tmp_path, {"step": 2})
    assert checkpoint.load_state(tmp_path)["step"] == 1
    assert os.listdir(tmp_path / "last") == ["state.pt"]


def test_tied_weights_are_written_under_each_name(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    checkpoint.export(model, tmp_path / "best", companions=tmp_path / "run")
    tensors = load_file(tmp_path / "best" / "model.safetensors")
    assert set(tensors) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert torch.equal(tensors["0.weight"], tensors["1.weight"])
    assert (tmp_path / "best" / "config.json").read_text() == "{}"


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "mine"
    checkpoint.prepare(out)
    checkpoint.prepare(out)
    (out / "metrics.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="is not empty: continue it with --resume"):
        checkpoint.prepare(out)
    checkpoint.prepare(out, resume=True)
    with pytest.raises(UserError, match="nothing to resume"):
        checkpoint.prepare(tmp_path / "elsewhere", resume=True)
    with pytest.raises(UserError, match="is a file"):
        checkpoint.prepare(out / "metrics.jsonl")


def test_overwriting_removes_a_run_and_nothing_else(tmp_path: Path) -> None:
    checkpoint.save_state(tmp_path, {"step": 1})
    (tmp_path / "events.out.tfevents.1.host").touch()
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "thesis.tex").write_text("mine")
    checkpoint.prepare(tmp_path, overwrite=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]
