"""Opening weight files of others: tensors alone, or a clear refusal."""

import argparse
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from alignfuse.convert.files import read_state
from alignfuse.errors import UserError


def test_pickled_objects_are_refused_unless_trusted(tmp_path: Path) -> None:
    file = tmp_path / "old.pth"
    torch.save({"model": {"w": torch.ones(2)}, "args": argparse.Namespace(lr=1e-4)}, file)
    with pytest.raises(UserError, match=r"old\.pth: holds more than tensors .*--trust"):
        read_state(file)
    assert read_state(file, trust=True)["w"].tolist() == [1.0, 1.0]


def test_a_pickle_never_runs_code(tmp_path: Path) -> None:
    marker = tmp_path / "ran"

    class Hostile:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (marker,))  # type: ignore[return-value]

    torch.save({"model": Hostile()}, tmp_path / "hostile.pth")
    with pytest.raises(UserError):
        read_state(tmp_path / "hostile.pth")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["cut.pth", "cut.bin", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04"])
def test_broken_files(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=name):
        read_state(tmp_path / name)


def test_what_is_no_checkpoint_is_not_to_be_trusted(tmp_path: Path) -> None:
    (tmp_path / "notes.pth").write_text("some notes", encoding="utf-8")
    with zipfile.ZipFile(tmp_path / "photos.pth", "w") as archive:
        archive.writestr("photo.txt", "a boat")
    for name in ("notes.pth", "photos.pth"):
        with pytest.raises(UserError, match=f"{name}: not a checkpoint") as refusal:
            read_state(tmp_path / name)
        assert "--trust" not in str(refusal.value)


def test_a_truncated_file(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(1000)}, tmp_path / "whole.pth")
    (tmp_path / "half.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:2000])
    with pytest.raises(UserError, match=r"half\.pth: cannot be read as a checkpoint"):
        read_state(tmp_path / "half.pth")


def test_wrappings_and_prefixes_of_training_scripts(tmp_path: Path) -> None:
    state = {"module.a.weight": torch.ones(1), "module._orig_mod.b": torch.ones(1), "step": 3}
    torch.save({"epoch": 2, "state_dict": state, "config": {"lr": 0.1}}, tmp_path / "x.pt")
    assert set(read_state(tmp_path / "x.pt")) == {"a.weight", "b"}


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    save_file(
        {"h": torch.ones(1).half(), "b": torch.ones(1).bfloat16(), "n": torch.ones(1).long()},
        tmp_path / "x.safetensors",
    )
    state = read_state(tmp_path / "x.safetensors")
    assert (state["h"].dtype, state["b"].dtype, state["n"].dtype) == (torch.float32, torch.float32, torch.int64)


def test_not_a_number_is_named(tmp_path: Path) -> None:
    torch.save({"good": torch.ones(1), "bad": torch.tensor([1.0, float("nan")])}, tmp_path / "x.pt")
    with pytest.raises(UserError, match="bad holds NaN"):
        read_state(tmp_path / "x.pt")


def test_what_a_directory_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no weights here, expected one of model\.safetensors, pytorch_model\.bin"):
        read_state(tmp_path)
    with pytest.raises(UserError, match="no such file or directory"):
        read_state(tmp_path / "nowhere")
    torch.save([torch.ones(1)], tmp_path / "list.pt")
    with pytest.raises(UserError, match="holds no named tensors"):
        read_state(tmp_path / "list.pt")
