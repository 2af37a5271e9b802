"""What a run leaves behind, written so that a kill at any moment leaves the old or the new state, never half of one.

config.json  tokenizer.json  preprocessing.json    written by the recipe before training
model.safetensors                                  weights; with the three above a directory that `load` opens
training.safetensors                               teacher and queues, for training that goes on from here
last/state.pt                                      everything that resuming needs: one file of plain containers
best/                                              the model with the best validation score, ready to load
metrics.jsonl  bad_samples.jsonl  TensorBoard events
"""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from alignfuse.errors import UserError, one_line
from alignfuse.files import replace_file, require_empty

COMPANIONS = ("config.json", "tokenizer.json", "preprocessing.json")
LEFT_BEHIND = (
    *COMPANIONS,
    "model.safetensors",
    "training.safetensors",
    "last",
    "best",
    "metrics.jsonl",
    "bad_samples.jsonl",
    "report.html",
    "events.out.tfevents.*",
)
FORMAT = 1


def refuse_occupied(out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """UserError where no run can be: no directory, or one that holds anything unless to resume or to overwrite it."""
    remedy = f"continue it with --resume {out}, or replace it with --overwrite"
    require_empty(out, remedy=remedy, overwrite=resume or overwrite)
    if resume and not (out.is_dir() and any(out.iterdir())):
        raise UserError(f"nothing to resume: {out} does not exist or is empty")


def prepare(out: Path, *, resume: bool = False, overwrite: bool = False) -> None:
    """Make the run directory, or refuse as above. Overwriting removes what a run leaves behind and nothing else."""
    refuse_occupied(out, resume=resume, overwrite=overwrite)
    out.mkdir(parents=True, exist_ok=True)
    if overwrite:
        for path in [path for pattern in LEFT_BEHIND for path in out.glob(pattern)]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def save_state(out: Path, state: Mapping[str, Any]) -> None:
    """Replace `last/`. The state is made of dictionaries, lists, texts, numbers and tensors."""
    replace_file(state_file(out), lambda path: torch.save({"format": FORMAT, **state}, path))


def state_file(out: Path) -> Path:
    """Where the state of a run stands."""
    return out / "last" / "state.pt"


def has_state(out: Path) -> bool:
    """Whether there is anything to go on from."""
    return state_file(out).is_file()


def load_state(out: Path) -> dict[str, Any]:
    """What `save_state` wrote, on the CPU."""
    path = state_file(out)
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises depends on where the file is damaged
        raise UserError(f"cannot read the checkpoint {path}: {one_line(error)}") from error
    found = state.get("format") if isinstance(state, dict) else None
    if found != FORMAT:
        raise UserError(f"{path} has format {found}, this version reads {FORMAT}")
    return state


def export(model: nn.Module, folder: Path, companions: Path | None = None) -> None:
    """Write the model's weights into `folder`, with copies of the files that belong to them from `companions`."""
    write_tensors(folder / "model.safetensors", model.state_dict())
    for name in COMPANIONS:
        if companions is not None and (companions / name).is_file():
            source = companions / name
            replace_file(folder / name, lambda path, source=source: shutil.copyfile(source, path))  # type: ignore[misc]


def export_training_state(system: nn.Module, out: Path) -> None:
    """Write what the system holds beside the model: teacher and queues."""
    beside = {name: tensor for name, tensor in system.state_dict().items() if not name.startswith("model.")}
    if beside:
        write_tensors(out / "training.safetensors", beside)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """A safetensors file under every name of the state; tensors that share memory are written once for each name."""
    seen: set[int] = set()
    own: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        on_host = tensor.detach().cpu().contiguous()
        place = on_host.untyped_storage().data_ptr()
        own[name] = on_host.clone() if place in seen else on_host
        seen.add(place)
    replace_file(path, lambda partial: save_file(own, partial))


def write_json(path: Path, value: object) -> None:
    """A JSON file."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    replace_file(path, lambda partial: partial.write_text(text, encoding="utf-8"))
