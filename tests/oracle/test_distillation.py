"""Momentum distillation against values worked out by hand."""

import math

import pytest
import torch

from alignfuse.objectives.contrastive import contrastive_loss
from alignfuse.objectives.distillation import blend, ramp, soft_cross_entropy

LOG3 = math.log(3.0)  # logits (log 3, 0) have probabilities 3/4 and 1/4
TEACHER = torch.tensor([[LOG3, 0.0]])
HARD = torch.tensor([[0.0, 1.0]])


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, [0.0, 1.0]), (0.4, [0.3, 0.7]), (1.0, [0.75, 0.25])])
def test_blended_targets(alpha: float, expected: list[float]) -> None:
    assert torch.allclose(blend(HARD, TEACHER, alpha), torch.tensor([expected]))


@pytest.mark.parametrize("alpha", [0.0, 0.4, 1.0])
def test_the_blended_loss_is_the_blend_of_the_losses(alpha: float) -> None:
    """Student at (0, log 3): hard label costs log 4/3, the teacher 3/4 log 4 + 1/4 log 4/3."""
    student = torch.tensor([[0.0, LOG3]])
    hard, soft = math.log(4 / 3), 0.75 * math.log(4) + 0.25 * math.log(4 / 3)
    loss = contrastive_loss(student, blend(HARD, TEACHER, alpha), torch.ones(2, dtype=torch.bool))
    assert loss.item() == pytest.approx((1 - alpha) * hard + alpha * soft, abs=1e-6)
    assert soft_cross_entropy(student, TEACHER).item() == pytest.approx(soft, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_blended_rows_sum_to_one(alpha: float) -> None:
    random = torch.Generator().manual_seed(0)
    hard = torch.eye(6, 9)
    targets = blend(hard, 20 * torch.randn(6, 9, generator=random), alpha)
    assert torch.allclose(targets.sum(1), torch.ones(6), atol=1e-6)


def test_keys_that_do_not_exist_get_no_mass() -> None:
    """An empty slot has logit -inf; the rest is as if it were not there."""
    targets = blend(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[LOG3, 0.0, -math.inf]]), 0.4)
    assert torch.allclose(targets, torch.tensor([[0.9, 0.1, 0.0]]))


def test_a_student_equal_to_its_teacher_costs_the_entropy() -> None:
    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(5, 8, generator=random)
    rows = [[math.exp(x) for x in row] for row in logits.double().tolist()]
    entropy = -sum(p / sum(row) * math.log(p / sum(row)) for row in rows for p in row)
    student = logits.clone().requires_grad_()
    loss = soft_cross_entropy(student, logits)
    loss.backward()
    assert loss.item() == pytest.approx(entropy, rel=1e-5)
    assert student.grad is not None and student.grad.abs().max() < 1e-6  # the minimum


def test_no_gradient_reaches_the_teacher() -> None:
    teacher, student = TEACHER.clone().requires_grad_(), torch.zeros(1, 2, requires_grad=True)
    soft_cross_entropy(student, teacher).backward()
    (blend(HARD, teacher, 0.4) * student).sum().backward()
    assert teacher.grad is None
    assert student.grad is not None and student.grad.abs().sum() > 0


def test_no_rows_is_a_zero_that_stays_attached() -> None:
    student = torch.zeros(0, 5, requires_grad=True)
    loss = soft_cross_entropy(student, torch.zeros(0, 5))
    loss.backward()
    assert loss.item() == 0.0 and loss.requires_grad


@pytest.mark.parametrize(("epoch", "expected"), [(0.0, 0.0), (0.25, 0.1), (1.0, 0.4), (1.5, 0.4), (29.0, 0.4)])
def test_ramp_over_the_first_epoch(epoch: float, expected: float) -> None:
    assert ramp(0.4, epoch, 1.0) == pytest.approx(expected)


def test_other_ramps() -> None:
    assert ramp(0.4, 1.0, 2.0) == pytest.approx(0.2)
    assert ramp(0.4, 0.0, 0.0) == 0.4  # no ramp
