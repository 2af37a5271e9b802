"""Three pretraining steps of the official code: losses, gradients, moved teacher, queues."""

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
    return Case(shared / "parity/albef/pretrain")


def test_three_steps(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    system = system_of(case, case.convert())
    config = system.model.config
    optimizer = torch.optim.AdamW(system.model.parameters(), lr=1e-3, weight_decay=0.02)
    for number, epoch in ((1, 0.0), (2, 0.5), (3, 1.0)):  # alpha 0, 0.2, 0.4
        prefix = f"step{number}."
        batch, draws = batch_of(case, prefix), draws_of(case, prefix)
        optimizer.zero_grad()
        with recorded(monkeypatch) as calls:
            step, _, lesson = take_step(system, batch, draws, epoch=epoch)
        check_losses(case, f"out.{prefix}".removeprefix("out."), step)
        check_features(case, prefix, system, batch, lesson)
        check_mining(case, prefix, draws)
        (_, image_targets, _), (_, text_targets, _) = calls["contrastive_loss"]
        case.agree(f"out.{prefix}target_i2t", image_targets)
        case.agree(f"out.{prefix}target_t2i", text_targets)
        case.agree(f"out.{prefix}itm_logits", calls["matching_loss"][0][0])
        case.agree(f"out.{prefix}mlm_logits_at_masked", calls["masked_language_loss"][0][0])
        case.agree(f"out.{prefix}mlm_teacher_logits_at_masked", calls["soft_cross_entropy"][0][1])
        if number == 1:
            check_gradients(case, system.model, config)
        optimizer.step()
        system.after_step([step.carry])
    check_queue(case, "", system)
    check_parameters(case, system, config)


def check_gradients(case: Case, model, config) -> None:  # type: ignore[no-untyped-def]
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    assert all(gradient is not None for gradient in gradients.values())
    theirs = to_theirs(gradients, sources(config))
    stated = case.read("grad_norms")
    for name, norm in stated["grad_norms_step1"].items():
        if name not in stated["noise_only"]:
            near(theirs[name].norm(), torch.tensor(norm), noise=1e-5 * norm, magnitude=norm, name=f"gradient of {name}")
    for name in ("temp", "text_proj.weight", "text_encoder.bert.embeddings.word_embeddings.weight"):
        case.agree(f"out.step1.grad.{name}", theirs[name])


def check_parameters(case: Case, system, config) -> None:  # type: ignore[no-untyped-def]
    after = to_theirs(dict(system.model.named_parameters()), sources(config))
    after |= to_theirs(dict(system.teacher.model.named_parameters()), sources(config, momentum=True))
    queue = ("image_queue", "text_queue", "queue_ptr")
    for name in case.tensors:
        if name.startswith("out.after.") and name.removeprefix("out.after.") not in queue:
            case.agree(name, after[name.removeprefix("out.after.")].reshape(case[name].shape))
    noise_only = case.read("grad_norms")["noise_only"]
    skipped = {*noise_only, *(name.replace("text_encoder.", "text_encoder_m.") for name in noise_only)}
    for name, stated in case.read("param_norms_after").items():
        if name in skipped or ".predictions.decoder." in name:  # a second name of the word table and of the bias
            continue
        # AdamW moves the key third of a ViT's qkv bias, whose gradient is rounding noise, by up to the rate a step
        loose = 3e-3 * len(after[name]) ** 0.5 if name.endswith("qkv.bias") else 0.0
        near(after[name].norm(), torch.tensor(stated["l2"]), noise=loose / 10, magnitude=stated["l2"], name=name)
