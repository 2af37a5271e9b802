"""The momentum teacher: an exponential moving average of a model (ALBEF section 3.3; He et al. 2020, eq. 2)."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Teacher(nn.Module):
    """A copy of a model that follows it slowly and takes no gradient.

    Its dropout is off by default; `dropout=True` keeps the student's (the official ALBEF code does). Parts that the
    teacher is never asked for are left out of the copy with `without`.
    """

    def __init__(self, student: nn.Module, *, without: Sequence[str] = (), dropout: bool = False) -> None:
        super().__init__()
        self.model = copy.deepcopy(student)
        for name in without:
            delattr(self.model, name)
        self.model.requires_grad_(False)
        self.dropout = dropout
        self.train(student.training)

    def train(self, mode: bool = True) -> "Teacher":
        """Evaluation mode unless the teacher keeps its dropout."""
        super().train(mode and self.dropout)
        return self

    def pairs(self, student: nn.Module) -> tuple[list[Tensor], list[Tensor]]:
        """The teacher's parameters and those of the student that they follow, in one order."""
        theirs = dict(student.named_parameters())
        mine = dict(self.model.named_parameters())
        return list(mine.values()), [theirs[name] for name in mine]

    @torch.no_grad()
    def move(self, student: nn.Module, momentum: float) -> None:
        """teacher <- momentum * teacher + (1 - momentum) * student, for every parameter."""
        mine, theirs = self.pairs(student)
        torch._foreach_mul_(mine, momentum)
        torch._foreach_add_(mine, [parameter.detach() for parameter in theirs], alpha=1.0 - momentum)

    @torch.no_grad()
    def copy(self, student: nn.Module) -> None:
        """Start again from the student, as after loading other weights into it."""
        mine, theirs = self.pairs(student)
        torch._foreach_copy_(mine, [parameter.detach() for parameter in theirs])
