"""Copying weights into a model by name; what does not fit is reported, position tables are brought to size before.

Shapes: L positions, D width.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from alignfuse.blocks.vision import Grid, resize_positions
from alignfuse.convert.report import LoadReport
from alignfuse.errors import UserError


def fill(
    model: nn.Module,
    tensors: dict[str, Tensor],
    report: LoadReport,
    *,
    parts: tuple[str, ...] = ("",),
    lacks: Callable[[str], bool] = lambda name: False,
) -> None:
    """Copy tensors (under our names) into the parameters and buffers of `model`, whose dtypes stay.

    `parts`: beginnings of the names that the source answers for (default: all); `lacks`: those among them that such a
    source cannot hold. Nothing is raised here for what does not fit: call `check` on the report.
    """
    state = model.state_dict(keep_vars=True)
    for name, target in state.items():
        if name in tensors and tensors[name].shape != target.shape:
            report.mismatched[name] = (tuple(tensors[name].shape), tuple(target.shape))
        elif name in tensors:
            with torch.no_grad():
                target.copy_(tensors[name])
            report.loaded.append(name)
        elif name.startswith(parts) and not lacks(name):
            report.missing.append(name)
        else:
            report.new.append(name)
    report.unexpected += [name for name in tensors if name not in state]


def resize_image_positions(
    tensors: dict[str, Tensor], name: str, grid: Grid, report: LoadReport, *, old: Grid | None = None, prefix: int = 1
) -> None:
    """Bring the image position table `name` to `grid`, bicubically; without `old` it is taken for a square."""
    if name not in tensors:
        return
    old = old or square_grid(tensors[name].shape[1] - prefix, report.source)
    if old != grid:
        tensors[name] = resize_positions(tensors[name], old, grid, prefix=prefix)
        report.resized[name] = f"from {old[0]} x {old[1]} to {grid[0]} x {grid[1]} places"


def cut_text_positions(tensors: dict[str, Tensor], name: str, positions: int, report: LoadReport) -> None:
    """Keep the first `positions` rows of a longer text position table."""
    if name in tensors and len(tensors[name]) > positions:
        report.resized[name] = f"to the first {positions} of {len(tensors[name])} places"
        tensors[name] = tensors[name][:positions]


def square_grid(places: int, source: str) -> Grid:
    """Rows and columns of a square grid of that many places."""
    side = math.isqrt(places)
    if side * side != places:
        raise UserError(f"{source}: the position table has {places} places, which is no square grid")
    return side, side
