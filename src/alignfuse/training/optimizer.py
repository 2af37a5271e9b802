"""AdamW (Loshchilov and Hutter 2019) with two groups: what is decayed and what is not."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

# Tables and tokens that are added to every input: pulling them to zero helps nothing.
UNDECAYED = frozenset({"position", "positions", "cls_token"})


@dataclass(frozen=True, kw_only=True)
class OptimizerConfig:
    """The defaults are those of ALBEF pretraining."""

    lr: float = 1e-4  # at the end of warm-up
    weight_decay: float = 0.02
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def __post_init__(self) -> None:
        if self.lr < 0 or self.weight_decay < 0:
            raise ValueError(f"lr and weight_decay must not be negative, not {self.lr} and {self.weight_decay}")
        if self.eps <= 0:
            raise ValueError(f"eps must be above 0, not {self.eps}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be at least 0 and below 1, not {self.betas}")


def is_decayed(name: str, parameter: nn.Parameter) -> bool:
    """Matrices and filters are decayed; biases, norms, scalars (temperature), position tables and [CLS] are not."""
    return parameter.ndim >= 2 and not UNDECAYED & set(name.split("."))


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The trainable parameters as AdamW's groups, each with its parameters' names; a shared parameter stands once."""
    groups: list[dict[str, Any]] = []
    trainable = [(name, parameter) for name, parameter in module.named_parameters() if parameter.requires_grad]
    for decayed, decay in ((True, weight_decay), (False, 0.0)):
        named = [(name, parameter) for name, parameter in trainable if is_decayed(name, parameter) is decayed]
        groups.append({"params": named, "weight_decay": decay})
    return groups


def make_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.AdamW:
    """AdamW on fp32 master weights, in one fused kernel.

    A module in half precision, as some checkpoints are stored, is converted to fp32 in place: an update in fp16 rounds
    to nothing or overflows.
    """
    groups = parameter_groups(module.float(), config.weight_decay)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
