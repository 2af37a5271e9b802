"""The ALBEF system set up as a parity case says, and a record of what its objectives were given."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.convert.albef import Converted
from alignfuse.data.batch import Batch
from alignfuse.objectives import contrastive, distillation, masked_language, matching
from alignfuse.systems.albef import ALBEFSystem, ALBEFTraining, Lesson
from alignfuse.systems.draws import GivenDraws
from alignfuse.systems.protocols import Clock, Masked, Step

from .case import Case

SPIED = (
    (contrastive, "contrastive_loss"),
    (distillation, "soft_cross_entropy"),
    (matching, "matching_loss"),
    (masked_language, "masked_language_loss"),
)
Record = dict[str, list[tuple[Any, ...]]]


@contextmanager
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Record]:
    """Arguments of every call of an objective while the context is open."""
    calls: Record = {name: [] for _, name in SPIED}

    def spy(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def call(*args: Any) -> Tensor:
            calls[name].append(args)
            return function(*args)

        return call

    with monkeypatch.context() as patch:
        for module, name in SPIED:
            patch.setattr(module, name, spy(name, getattr(module, name)))
        yield calls


def system_of(case: Case, converted: Converted, **training: Any) -> ALBEFSystem:
    """The training form of a converted checkpoint, with its teacher and its queue."""
    settings = {"alpha": 0.4, "ramp_epochs": 1.0, "momentum": case.config["momentum"], **training}
    queue_size = case.config["queue_size"]
    system = ALBEFSystem(converted.model, ALBEFTraining(queue_size=queue_size, **settings), mask_id=103)
    system.teacher = converted.teacher
    if converted.queue is not None:
        system.queue = converted.queue
    return system.train()


def batch_of(case: Case, prefix: str, *, ids: str | None = None) -> Batch:
    """Images and texts `in.PREFIX*` with image ids from the tensor `ids`."""
    text = Text(case[f"in.{prefix}input_ids"], case[f"in.{prefix}attention_mask"].bool())
    image_name = f"in.{prefix}image_u8" if f"in.{prefix}image_u8" in case.tensors else "in.image_u8"
    return Batch(images=case[image_name], text=text, image_ids=None if ids is None else case[ids])


def draws_of(case: Case, prefix: str) -> GivenDraws:
    """The choices `draw.PREFIX.*` that were fixed."""
    mined = {
        "image_for_text": case[f"draw.{prefix}neg_image_for_text"],
        "text_for_image": case[f"draw.{prefix}neg_text_for_image"],
    }
    labels = case.tensors.get(f"draw.{prefix}mlm_labels")
    masked = None if labels is None else Masked(case[f"draw.{prefix}masked_input_ids"], labels)
    return GivenDraws(masked, mined)


def take_step(system: ALBEFSystem, batch: Batch, draws: GivenDraws, *, epoch: float) -> tuple[Step, Tensor, Lesson]:
    """One forward and backward in the loop's order, as far as the gradients."""
    system.before_step()
    lesson = system.teach(batch)
    step = system(batch, [lesson], 0, Clock(0, 1, epoch), draws)
    total = torch.stack([loss.total / loss.count for loss in step.losses.values()]).sum()
    total.backward()
    return step, total, lesson


def check_losses(case: Case, prefix: str, step: Step) -> None:
    """Mean losses of the step against `out.PREFIX*`."""
    for ours, theirs in (("itc", "loss_ita"), ("itm", "loss_itm"), ("mlm", "loss_mlm")):
        if ours in step.losses:
            case.agree(f"out.{prefix}{theirs}", step.losses[ours].total / step.losses[ours].count)


def check_mining(case: Case, prefix: str, draws: GivenDraws) -> None:
    """Weights that negatives are drawn from; the reference stores them unnormalised."""
    for direction in ("text_for_image", "image_for_text"):
        name = f"out.{prefix}neg_weight_{direction}"
        case.agree(name, draws.weights[direction] * case[name].sum(1, keepdim=True))


def check_features(case: Case, prefix: str, system: ALBEFSystem, batch: Batch, lesson: Lesson) -> None:
    """Features of student and teacher for the batch of a step, before its update."""
    assert batch.images is not None and batch.text is not None
    with torch.no_grad():
        case.agree(f"out.{prefix}image_feat", system.model.embed_image(system.model.encode_image(batch.images)))
        case.agree(f"out.{prefix}text_feat", system.model.embed_text(system.model.encode_text(batch.text)))
    case.agree(f"out.{prefix}image_feat_m", lesson.keys.images)
    case.agree(f"out.{prefix}text_feat_m", lesson.keys.texts)


def check_queue(case: Case, prefix: str, system: ALBEFSystem) -> None:
    """The queue after the last step; slots whose id is not known are -100 there."""
    expected = {name: value for name, value in case.tensors.items() if name.startswith(f"out.{prefix}after.")}
    ours = {
        "image_queue": system.queue.images.T,
        "text_queue": system.queue.texts.T,
        "queue_ptr": system.queue.pointer[None],
        "idx_queue": system.queue.image_ids.masked_fill(system.queue.image_ids < 0, -100)[None],
    }
    for name, value in ours.items():
        if f"out.{prefix}after.{name}" in expected:
            case.agree(f"out.{prefix}after.{name}", value.contiguous())
