"""How parameters of a foreign layout become ours: for each of our names, the names there that are laid end to end.

Where we keep one fused projection and others keep three, the three are concatenated along the first axis, in order.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

Sources = dict[str, tuple[str, ...]]  # our name -> their names, concatenated along the first axis


def module(ours: str, *theirs: str) -> Sources:
    """Weight and bias of one of our modules, from one or more of theirs."""
    return {f"{ours}.{kind}": tuple(f"{name}.{kind}" for name in theirs) for kind in ("weight", "bias")}


class Translated(NamedTuple):
    """A foreign state under our names."""

    tensors: dict[str, Tensor]
    unused: list[str]  # their names that no rule takes


def to_ours(state: Mapping[str, Tensor], sources: Sources) -> Translated:
    """Tensors under our names; one of ours is left out when a part of it is absent there."""
    tensors = {}
    for name, parts in sources.items():
        if all(part in state for part in parts):
            found = [state[part] for part in parts]
            tensors[name] = found[0] if len(found) == 1 else torch.cat(found)
    used = {part for parts in sources.values() for part in parts}
    return Translated(tensors, [name for name in state if name not in used])


def to_theirs(tensors: Mapping[str, Tensor], sources: Sources) -> dict[str, Tensor]:
    """The way back: our tensors (parameters, gradients) split under their names."""
    theirs: dict[str, Tensor] = {}
    for name, parts in sources.items():
        if name in tensors:
            split = tensors[name].chunk(len(parts)) if len(parts) > 1 else (tensors[name],)
            theirs.update(zip(parts, split, strict=True))
    return theirs


def count_layers(names: Mapping[str, Tensor], prefix: str) -> int:
    """Number of distinct indices i among names `prefix.i.`"""
    start = prefix + "."
    return len({name.removeprefix(start).split(".", 1)[0] for name in names if name.startswith(start)})
