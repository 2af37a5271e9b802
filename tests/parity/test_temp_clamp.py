"""The official code clamps the temperature in pretraining alone; ours does so everywhere unless told otherwise."""

from pathlib import Path

import pytest
import torch

from .albef_system import batch_of, check_losses, check_mining, draws_of, recorded, system_of, take_step
from .case import Case


@pytest.fixture
def case(shared: Path) -> Case:
    return Case(shared / "parity/albef/temp_clamp")


@pytest.mark.parametrize("name", ["pretrain.temp0", "pretrain.temp1", "retrieval.temp0"])
def test_official_phases(case: Case, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    phase, index = name.split(".temp")
    if phase == "pretrain":
        system = system_of(case, case.convert())
    else:
        system = system_of(case, case.convert(), objectives=("itc", "itm"), clamp_temperature=False)
    with torch.no_grad():
        system.model.temperature.copy_(case["in.temp_override"][int(index)])
    batch = batch_of(case, "", ids="in.idx" if phase == "retrieval" else None)
    draws = draws_of(case, f"{name}.")
    with recorded(monkeypatch) as calls:
        step, _, _ = take_step(system, batch, draws, epoch=1.0)
    check_losses(case, f"{name}.", step)
    check_mining(case, f"{name}.", draws)
    for target, (_, targets, _) in zip(("target_i2t", "target_t2i"), calls["contrastive_loss"], strict=True):
        case.agree(f"out.{name}.{target}", targets)
    case.agree(f"out.{name}.temp_after_forward", system.model.temperature)
    gradient = system.model.temperature.grad
    assert gradient is not None
    case.agree(f"out.{name}.grad.temp", gradient)


@pytest.mark.parametrize(("value", "clamped"), [(0.7, 0.5), (0.0005, 0.001)])
def test_clamped_in_fine_tuning_too_by_default(case: Case, value: float, clamped: float) -> None:
    system = system_of(case, case.convert(), objectives=("itc", "itm"))
    with torch.no_grad():
        system.model.temperature.fill_(value)
    system.before_step()
    assert system.model.temperature.item() == pytest.approx(clamped)
