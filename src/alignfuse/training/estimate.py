"""What a run will cost, before it begins."""

import shutil
from pathlib import Path

import torch
from torch import nn

from alignfuse.errors import UserError
from alignfuse.training.progress import duration
from alignfuse.wording import counted

REHEARSALS, PATIENCE = 24, 2.0  # steps that are made for the estimate at most, and seconds until no more is begun
LARGE = 50_000_000  # trainable parameters beyond which a CPU is the wrong machine


def trainable(module: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def refuse_large_on_cpu(module: nn.Module, device: torch.device, *, yes: bool) -> None:
    """A base-size model on a CPU trains for weeks: the user has to say that this is meant."""
    if device.type == "cpu" and trainable(module) > LARGE and not yes:
        millions = trainable(module) / 1e6
        raise UserError(
            f"{millions:.0f} million parameters on a CPU take seconds per pair: choose a smaller size (--size toy or "
            "small), a machine with a GPU, or add --yes to train all the same"
        )


def disk_bytes(system: nn.Module) -> int:
    """The most that a run's directory holds at once: two full states while one replaces the other, and two exports."""
    state: int = sum(tensor.numel() * tensor.element_size() for tensor in system.state_dict().values())
    return 2 * (state + 8 * trainable(system)) + 2 * state


def describe(system: nn.Module, out: Path, *, steps: int, updates: int, samples: int, seconds: float) -> list[str]:
    """Lines for the user: parameters, steps, time at `seconds` per step, and disk. `steps` are those still to come."""
    whole = sum(parameter.numel() for parameter in system.parameters())
    need, free = disk_bytes(system), shutil.disk_usage(out).free
    rest = whole - trainable(system)
    lines = [
        f"parameters: {trainable(system):,} trainable" + (f", {rest:,} not (teacher, frozen parts)" if rest else ""),
        f"steps: {steps:,}, {updates:,} for each epoch of {counted(samples, 'sample')}",
        f"time: about {duration(steps * seconds)} at {seconds:.3f} s a step, validation not counted",
        f"disk: up to {_size(need)} in {out}, {_size(free)} free",
    ]
    if need > free:
        lines.append("warning: the disk is too small for this run's checkpoints")
    return lines


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
