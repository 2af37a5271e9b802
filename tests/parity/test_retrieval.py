"""Retrieval fine-tuning of the official code with image ids: two steps with and without distillation."""

from pathlib import Path

import pytest
import torch

from alignfuse.convert.albef import sources
from alignfuse.convert.layout import to_theirs

from .albef_system import (
    batch_of,
    check_features,
    check_losses,
    check_mining,
    check_queue,
    draws_of,
    recorded,
    system_of,
    take_step,
)
from .case import Case, near


@pytest.fixture
def case(shared: Path) -> Case:
    return Case(shared / "parity/albef/retrieval")


@pytest.mark.parametrize("run", ["distill", "plain"])
def test_two_steps(case: Case, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alpha = 0.4 if run == "distill" else 0.0
    system = system_of(case, case.convert(), alpha=alpha, objectives=("itc", "itm"), clamp_temperature=False)
    parameters = [p for n, p in system.model.named_parameters() if not n.startswith("mask_head")]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.02)
    for number, epoch in ((1, 0.625), (2, 1.0)):  # alpha 0.25, 0.4
        prefix = f"{run}.step{number}."
        batch, draws = batch_of(case, f"step{number}.", ids=f"in.step{number}.idx"), draws_of(case, prefix)
        optimizer.zero_grad()
        with recorded(monkeypatch) as calls:
            step, _, lesson = take_step(system, batch, draws, epoch=epoch)
        check_losses(case, prefix, step)
        check_features(case, prefix, system, batch, lesson)
        check_mining(case, prefix, draws)
        case.agree(f"out.{prefix}itm_logits", calls["matching_loss"][0][0])
        names = ("target_i2t", "target_t2i") if run == "distill" else ("target", "target")
        for name, (_, targets, _) in zip(names, calls["contrastive_loss"], strict=True):
            case.agree(f"out.{prefix}{name}", targets)
        if number == 1:
            check_gradients(case, run, system)
        optimizer.step()
        system.after_step([step.carry])
    check_queue(case, f"{run}.", system)
    after = to_theirs(dict(system.model.named_parameters()), sources(system.model.config, bert_prefix=""))
    after |= to_theirs(
        dict(system.teacher.model.named_parameters()), sources(system.model.config, bert_prefix="", momentum=True)
    )
    for name in ("vision_proj_m.weight", "text_proj.weight", "itm_head.weight", "temp"):
        case.agree(f"out.{run}.after.{name}", after[name])


def check_gradients(case: Case, run: str, system) -> None:  # type: ignore[no-untyped-def]
    stated = case.read("grad_norms")
    norms = stated[next(name for name in stated if run in name and "noise" not in name)]
    gradients = {n: p.grad for n, p in system.model.named_parameters() if p.grad is not None}
    theirs = to_theirs(gradients, sources(system.model.config, bert_prefix=""))
    for name, norm in norms.items():
        if name not in stated["noise_only"]:
            near(theirs[name].norm(), torch.tensor(norm), noise=1e-5 * norm, magnitude=norm, name=f"gradient of {name}")
