"""The momentum teacher: an exponential moving average of a model (ALBEF section 3.3; He et al. 2020, eq. 2)."""

import copy
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import nn

Student = TypeVar("Student", bound=nn.Module)


class Teacher(nn.Module, Generic[Student]):
    """A copy of a model that follows it slowly and takes no gradient.

    Its dropout is off by default; `dropout=True` keeps the student's (the official ALBEF code does). Parts that the
    teacher is never asked for are left out of the copy with `without`.
    """

    model: Student

    def __init__(self, student: Student, *, without: Sequence[str] = (), dropout: bool = False) -> None:
        super().__init__()
        self.model = copy.deepcopy(student)
        for name in without:
            delattr(self.model, name)
        self.model.requires_grad_(False)
        self.dropout = dropout
        self.train(student.training)

    def train(self, mode: bool = True) -> "Teacher[Student]":
        """Evaluation mode unless the teacher keeps its dropout."""
        super().train(mode and self.dropout)
        return self

    @torch.no_grad()
    def move(self, student: nn.Module, momentum: float) -> None:
        """teacher <- momentum * teacher + (1 - momentum) * student, for every parameter."""
        mine = dict(self.model.named_parameters())
        theirs = dict(student.named_parameters(remove_duplicate=False))  # a tied weight under each of its names
        torch._foreach_mul_(list(mine.values()), momentum)
        torch._foreach_add_(list(mine.values()), [theirs[name].detach() for name in mine], alpha=1.0 - momentum)

    @torch.no_grad()
    def copy(self, student: nn.Module) -> None:
        """Start again from the student, as after loading other weights into it; its buffers are copied too."""
        theirs = student.state_dict()
        for name, mine in self.model.state_dict().items():
            mine.copy_(theirs[name])
