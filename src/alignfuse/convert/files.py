"""Reading weight files of others: safetensors, or pickle with tensors alone."""

import json
import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from alignfuse.errors import UserError

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")  # names in a directory, the first found is taken
WRAPPERS = ("model", "state_dict", "module")  # keys under which training scripts store the weights
HARMLESS = ("position_ids", "num_batches_tracked")  # buffers without information: a count or 0, 1, 2, ...


def weight_file(path: Path) -> Path:
    """The file itself, or the weight file of a directory."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"{path}: no such file or directory")
    for name in WEIGHT_FILES:
        if (path / name).is_file():
            return path / name
    raise UserError(f"{path}: no weights here, expected one of {', '.join(WEIGHT_FILES)}")


def read_state(path: Path, *, trust: bool = False) -> dict[str, Tensor]:
    """All tensors of a weight file (or of a directory with one) by name, in float32, without the harmless buffers.

    Pickle is opened for tensors alone; a file that holds other objects is refused unless `trust`, because opening it
    can run any code that its author put in.
    """
    file = weight_file(path)
    state = _unwrap(_open(file, trust))
    tensors = {_plain(str(name)): value for name, value in state.items() if isinstance(value, Tensor)}
    tensors = {name: value for name, value in tensors.items() if not name.endswith(HARMLESS)}
    if not tensors:
        raise UserError(f"{file}: holds no named tensors")
    for name, value in tensors.items():
        if value.is_floating_point() and not value.isfinite().all():
            raise UserError(f"{file}: {name} holds NaN or infinite values")
    return {name: value.float() if value.is_floating_point() else value for name, value in tensors.items()}


def tied(state: dict[str, Tensor], name: str, twin: str) -> bool:
    """Whether `name` is only a second name of `twin`, as the output matrix is of the word table in BERT."""
    return name in state and twin in state and torch.equal(state[name], state[twin])


def read_settings(path: Path) -> dict[str, Any]:
    """The `config.json` of a directory, or beside a weight file; empty where there is none."""
    file = (path if path.is_dir() else path.parent) / "config.json"
    if not file.is_file():
        return {}
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{file}: not valid JSON ({error})") from error
    return settings if isinstance(settings, dict) else {}


def _open(file: Path, trust: bool) -> Any:
    if file.suffix != ".safetensors" and not _is_checkpoint(file):
        raise UserError(f"{file}: not a checkpoint: neither safetensors nor a file that torch.save has written")
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        return torch.load(file, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        if trust:
            raise UserError(f"{file}: cannot be read as a checkpoint ({_first_line(error)})") from error
        raise UserError(
            f"{file}: holds more than tensors ({_first_line(error)}); opening it can run code of its author. "
            "If you trust the source, open it with --trust (trust=True)"
        ) from error
    except Exception as error:  # what is raised depends on where the file is damaged
        raise UserError(f"{file}: cannot be read as a checkpoint ({_first_line(error)})") from error


def _is_checkpoint(file: Path) -> bool:
    """Whether torch.save may have written it: a zip with a pickle inside, or, as of old, a pickle."""
    with file.open("rb") as stream:
        start = stream.read(2)
    if start != b"PK":
        return start[:1] == b"\x80"
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("data.pkl") for name in archive.namelist())
    except zipfile.BadZipFile:  # cut short, of which torch says more
        return True


def _first_line(error: Exception) -> str:
    """What is wrong, of the page that torch writes about it."""
    text = str(error).strip()
    if found := re.search(r"WeightsUnpickler error: (.+)", text):
        return found[1].strip()
    return text.splitlines()[0] if text else type(error).__name__


def _unwrap(content: Any) -> dict[str, Any]:
    if not isinstance(content, dict):
        return {}
    for key in WRAPPERS:
        if isinstance(content.get(key), dict):
            return _unwrap(content[key])
    return content


def _plain(name: str) -> str:
    """The name without what DDP and compile put in front."""
    return name.removeprefix("module.").replace("_orig_mod.", "")
