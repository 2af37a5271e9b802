"""Our own run directories as starting weights.

Shapes: Q queue size.
"""

from pathlib import Path

import torch
from torch import Tensor

from alignfuse.config import from_dict
from alignfuse.convert.files import read_settings, read_state
from alignfuse.convert.report import LoadReport
from alignfuse.convert.source import IMAGE_PARTS, TEXT_PARTS, Source
from alignfuse.errors import UserError, reading
from alignfuse.models.albef import ALBEFConfig
from alignfuse.state.queue import NO_TOKEN, UNKNOWN_ID, FeatureQueue, Keys
from alignfuse.systems.albef import ALBEFSystem

TRAINING_FILE = "training.safetensors"


def model_config(directory: Path) -> ALBEFConfig:
    """The sizes of the model in a run directory."""
    settings = read_settings(directory)
    if "model" not in settings:
        raise UserError(f"{directory / 'config.json'}: it is missing, or holds no settings of a model")
    with reading(directory / "config.json"):
        return from_dict(ALBEFConfig, settings["model"], where="model")


def recognise(path: Path, state: dict[str, Tensor], *, parts: tuple[str, ...] = ("",)) -> Source | None:
    """The model of one of our run directories, or those parts of it; None where it is something else."""
    if "text_encoder.embeddings.word.weight" not in state and "image_encoder.positions" not in state:
        return None
    return _source(path, state, model_config(path if path.is_dir() else path.parent), parts)


def _source(path: Path, state: dict[str, Tensor], config: ALBEFConfig, parts: tuple[str, ...]) -> Source:
    return Source(
        path=path,
        state=state,
        names=lambda _: {name: (name,) for name in state if name.startswith(parts)},
        parts=parts,
        text=None if parts == IMAGE_PARTS else config.text,
        image=None if parts == TEXT_PARTS else config.image,
        left_out=() if parts == ("",) else ("",),
    )


def load_training(system: ALBEFSystem, directory: Path, *, keep_queue: bool = False) -> LoadReport:
    """Teacher and, if wanted, queue of a run directory into a system of the same widths, at any image or queue size.

    The ids of the queue belong to the data of that run: here they become unknown, so that its entries are negatives of
    everything. Without `keep_queue` the queue starts empty. A directory without this file gives a teacher that starts
    from the model.
    """
    path = directory / TRAINING_FILE
    if not path.is_file():
        system.teacher.copy(system.model)
        notice = "not there: the teacher starts from the model, the queue empty"
        return LoadReport(source=str(path), notices=[notice])
    state = read_state(path)
    teacher = _under("teacher.model.", state)
    report = _source(path, teacher, model_config(directory), ("",)).load(system.teacher.model)
    report.check()
    if keep_queue:
        _load_queue(system.queue, _under("queue.", state), report)
    else:
        report.notices.append("the queue starts empty")
    return report


def _load_queue(queue: FeatureQueue, state: dict[str, Tensor], report: LoadReport) -> None:
    """Push the entries of a stored queue, oldest first, into one of any size."""
    size = len(state["filled"])
    order = (state["pointer"] + torch.arange(size)) % size
    order = order[state["filled"][order]][-queue.size :]
    unknown = torch.full_like(order, UNKNOWN_ID)
    filled, captions = torch.ones_like(order).bool(), torch.full((len(order), queue.captions.shape[1]), NO_TOKEN)
    queue.push(Keys(state["images"][order], state["texts"][order], unknown, unknown, filled, captions))
    if size != queue.size:
        report.resized["queue"] = f"from {size} to {queue.size} places, the newest {min(len(order), queue.size)} kept"


def _under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}
