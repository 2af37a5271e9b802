"""A pretraining checkpoint loaded into retrieval fine-tuning by the official rules, at another image size."""

from pathlib import Path

import pytest

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
from .case import Case


@pytest.fixture
def case(shared: Path) -> Case:
    return Case(shared / "parity/albef/from_pretrain")


def test_retrieval(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    converted = case.convert(image_size=case.config["new_image_size"])
    system = system_of(case, converted, objectives=("itc", "itm"), clamp_temperature=False)
    assert system.queue.filled.all() and (system.queue.image_ids < 0).all()  # old features stay, as negatives
    batch, draws = batch_of(case, "retrieval.", ids="in.retrieval.idx"), draws_of(case, "retrieval.")
    with recorded(monkeypatch) as calls:
        step, _, lesson = take_step(system, batch, draws, epoch=1.0)
    check_losses(case, "retrieval.", step)
    check_features(case, "retrieval.", system, batch, lesson)
    check_mining(case, "retrieval.", draws)
    case.agree("out.retrieval.itm_logits", calls["matching_loss"][0][0])
    for target, (_, targets, _) in zip(("target_i2t", "target_t2i"), calls["contrastive_loss"], strict=True):
        case.agree(f"out.retrieval.{target}", targets)
    system.after_step([step.carry])
    check_queue(case, "retrieval.", system)
