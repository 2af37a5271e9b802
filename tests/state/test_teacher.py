"""The momentum teacher: moved by hand, with tied and left-out parts, never trained."""

import pytest
import torch
from torch import nn

from alignfuse.state.teacher import Teacher


class Student(nn.Module):
    """Two layers whose weight is one tensor, a head, a scalar, a running statistic."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 3)
        self.second = nn.Linear(3, 3)
        self.second.weight = self.first.weight
        self.head = nn.Linear(3, 2)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.dropout(self.second(self.first(x))) * self.scale
        return out


def perturb(student: nn.Module, by: float = 1.0) -> None:
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(by)


def test_starts_as_a_copy_with_tensors_of_its_own() -> None:
    student = Student()
    teacher = Teacher(student)
    for name, mine in teacher.model.state_dict().items():
        theirs = student.state_dict()[name]
        assert torch.equal(mine, theirs) and mine.data_ptr() != theirs.data_ptr()


def test_moves_by_hand() -> None:
    """2 -> 0.9 * 2 + 0.1 * 3 = 2.1, then 0.9 * 2.1 + 0.1 * 3 = 2.19."""
    student = Student()
    teacher = Teacher(student)
    perturb(student)
    expected = {name: value - 0.9 for name, value in student.state_dict().items() if name != "mean"}
    for moved in (2.1, 2.19):
        teacher.move(student, 0.9)
        assert teacher.model.scale.item() == pytest.approx(moved)
        if moved == 2.1:
            for name, value in expected.items():
                assert torch.allclose(teacher.model.state_dict()[name], value, atol=1e-6), name


@pytest.mark.parametrize("momentum", [0.0, 1.0])
def test_limits_of_the_momentum(momentum: float) -> None:
    student = Student()
    teacher = Teacher(student)
    perturb(student)
    teacher.move(student, momentum)
    assert teacher.model.scale.item() == (3.0 if momentum == 0.0 else 2.0)


def test_a_tied_weight_moves_once() -> None:
    student = Student()
    teacher = Teacher(student)
    perturb(student)
    before = teacher.model.first.weight.clone()
    teacher.move(student, 0.9)
    assert teacher.model.second.weight is teacher.model.first.weight
    assert torch.allclose(teacher.model.first.weight, before + 0.1, atol=1e-6)


@pytest.mark.parametrize("without", [("head", "scale"), ("first",)])
def test_parts_that_it_does_not_have(without: tuple[str, ...]) -> None:
    """Also when the part left out is the one under whose name a tied weight stands in the student."""
    student = Student()
    teacher = Teacher(student, without=without)
    assert not any(name.startswith(without) for name in teacher.model.state_dict())
    perturb(student)
    before = teacher.model.second.weight.clone()
    teacher.move(student, 0.75)
    assert torch.allclose(teacher.model.second.weight, before + 0.25, atol=1e-6)
    teacher.copy(student)
    assert torch.equal(teacher.model.second.weight, student.second.weight)
    assert hasattr(student, "head") and hasattr(student, "scale")


def test_starts_again_from_the_student() -> None:
    """With its running statistics, which a frozen norm reads."""
    student = Student()
    teacher = Teacher(student)
    perturb(student)
    student.mean.fill_(4.0)
    teacher.copy(student)
    for name, value in student.state_dict().items():
        assert torch.equal(teacher.model.state_dict()[name], value), name
    perturb(student)
    assert teacher.model.scale.item() == 3.0


def test_takes_no_gradient() -> None:
    student = Student()
    teacher = Teacher(student)
    x = torch.randn(2, 3)
    (student(x) * teacher.model(x)).sum().backward()
    teacher.move(student, 0.5)
    assert all(p.grad is None and not p.requires_grad for p in teacher.parameters())
    assert student.scale.grad is not None and student.scale.requires_grad


def test_stays_in_evaluation_when_its_owner_trains() -> None:
    class Owner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.student = Student().train()
            self.teacher = Teacher(self.student)

    owner, x = Owner(), torch.randn(4, 3)
    for mode in (True, False, True):
        owner.train(mode)
        assert owner.student.training == mode
        assert not any(module.training for module in owner.teacher.modules())
    assert torch.equal(owner.teacher.model(x), owner.teacher.model(x))


def test_keeps_dropout_where_asked_to() -> None:
    teacher, x = Teacher(Student(), dropout=True), torch.randn(64, 3)
    teacher.train()
    assert not torch.equal(teacher.model(x), teacher.model(x))
    teacher.eval()
    assert torch.equal(teacher.model(x), teacher.model(x))


def test_saved_and_loaded() -> None:
    student = Student()
    teacher = Teacher(student, without=("head",))
    perturb(student)
    teacher.move(student, 0.5)
    other = Teacher(Student(), without=("head",))
    other.load_state_dict(teacher.state_dict())
    for each in (teacher, other):
        each.move(student, 0.5)
    for name, value in teacher.state_dict().items():
        assert torch.equal(other.state_dict()[name], value), name
