"""What every system owes the training loop."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alignfuse.data.batch import Batch
from alignfuse.systems import SYSTEMS
from alignfuse.systems.protocols import Step, System
from tests.contract.setups import (
    TINY,
    WORDS,
    build,
    draws,
    objective,
    pairs,
    snapshot,
    step,
    subsets,
    update,
)
from tests.shape_checks import no_shape_checks

SHARED = torch.tensor([0 * 2**32 + 5, 1 * 2**32 + 5])  # caption 5 stands under the images 0 and 1
IDS: dict[str, dict[str, list[int]]] = {
    "distinct": {"image_ids": [0, 1, 2, 3], "caption_ids": [0, 1, 2, 3]},
    "repeated": {"image_ids": [7, 7, 9, 7], "caption_ids": [0, 1, 2, 3]},
    "one image": {"image_ids": [5, 5, 5, 5], "caption_ids": [0, 1, 2, 3]},
    "unknown": {"image_ids": [-1, -1, -100, 3], "caption_ids": [-1, -1, -1, -1]},
    "a caption under two images": {"image_ids": [0, 1, 2, 3], "caption_ids": [5, 1, 2, 3]},
    "two images left": {"image_ids": [0, 0, 1, 1], "caption_ids": [0, 1, 5, 3]},
}
everywhere = pytest.mark.parametrize("name", SYSTEMS)


def check_finite(system: nn.Module, out: Step) -> None:
    """Losses, metrics and every trainable parameter's gradient."""
    system.zero_grad()
    objective(out).backward()
    for name, value in {**out.losses, **out.metrics}.items():
        assert value.total.isfinite() and value.count.isfinite(), name
    for name, parameter in system.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, f"{name} has no gradient"
            assert parameter.grad.isfinite().all(), name


def test_every_system_is_tested() -> None:
    assert set(TINY) == set(SYSTEMS)


@everywhere
class TestSystem:
    def test_keeps_the_protocols(self, name: str) -> None:
        system = build(name)
        assert isinstance(system, System)
        for verbs in TINY[name].verbs:
            assert isinstance(system.model, verbs)

    def test_every_trainable_parameter_gets_a_finite_gradient(self, name: str) -> None:
        system = build(name)
        check_finite(system, step(system, pairs(6)))
        moved = [p.grad for p in system.model.parameters() if p.grad is not None]
        assert sum(bool(gradient.abs().max() > 0) for gradient in moved) > 0.9 * len(moved)

    def test_only_the_model_is_trained(self, name: str) -> None:
        """The teacher, where there is one, gets no gradient from anything."""
        system = build(name)
        objective(step(system, pairs(6))).backward()
        for part, parameter in system.named_parameters():
            if not part.startswith("model."):
                assert not parameter.requires_grad and parameter.grad is None, part

    def test_saved_and_loaded_it_goes_on_the_same(self, name: str, tmp_path: Path) -> None:
        system = build(name)
        optimizer = torch.optim.SGD(system.model.parameters(), lr=0.1)
        for number in range(3):
            update(system, optimizer, pairs(5, seed=number))
        torch.save(system.state_dict(), tmp_path / "state.pt")
        other = build(name)
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        outs = []
        for each in (system, other):
            optimizer = torch.optim.SGD(each.model.parameters(), lr=0.1)
            outs.append([update(each, optimizer, pairs(5, seed=number)) for number in (3, 4)])
        for ours, theirs in zip(*outs, strict=True):
            assert {k: v.total.item() for k, v in ours.losses.items()} == {
                k: v.total.item() for k, v in theirs.losses.items()
            }

    def test_forward_mutates_nothing(self, name: str) -> None:
        system = build(name)
        system.after_step([step(system, pairs(5, seed=1)).carry])
        before = snapshot(system)
        out = step(system, pairs(6))
        objective(out).backward()
        assert all(torch.equal(value, before[key]) for key, value in system.state_dict().items())
        again = step(system, pairs(6))
        for key, loss in out.losses.items():
            assert torch.equal(loss.total, again.losses[key].total), key

    def test_what_leaves_the_step_is_detached(self, name: str) -> None:
        out = step(build(name), pairs(4))
        assert not any(tensor.requires_grad for tensor in out.carry.values())
        assert not any(value.total.requires_grad for value in out.metrics.values())
        assert all(loss.total.requires_grad for loss in out.losses.values())

    @pytest.mark.parametrize("ids", IDS)
    def test_announced_terms_are_those_of_the_step(self, name: str, ids: str) -> None:
        batch = pairs(4, **IDS[ids])
        for objectives in subsets(name) or [()]:
            chosen: dict[str, Any] = {"objectives": objectives} if objectives else {}
            system = build(name, shared_pairs=SHARED, **chosen)
            announced = system.terms(batch, draws(batch))
            assert announced == {key: int(loss.count) for key, loss in step(system, batch).losses.items()}

    @pytest.mark.parametrize("ids", IDS)
    def test_any_ids_give_finite_losses(self, name: str, ids: str) -> None:
        system = build(name, shared_pairs=SHARED)
        batch = pairs(4, **IDS[ids])
        for _ in range(3):  # with an empty queue and with the same ids in it
            out = step(system, batch)
            check_finite(system, out)
            system.after_step([out.carry])

    def test_a_batch_without_ids(self, name: str) -> None:
        system, batch = build(name), pairs(4)
        check_finite(
            system, step(system, Batch(**{**vars(batch), "image_ids": None, "caption_ids": None}), choices=draws(batch))
        )

    def test_a_batch_of_one(self, name: str) -> None:
        system, batch = build(name), pairs(1)
        out = step(system, batch)
        check_finite(system, out)
        assert system.terms(batch, draws(batch)) == {key: int(loss.count) for key, loss in out.losses.items()}

    def test_equal_images_and_texts(self, name: str) -> None:
        """Pairs that cannot be told apart under ids that say they differ."""
        one = pairs(1)
        assert one.images is not None and one.text is not None and one.maskable is not None
        several = pairs(4)
        copies = Batch(
            images=one.images.expand(4, -1, -1, -1),
            text=type(one.text)(one.text.ids.expand(4, -1), one.text.mask.expand(4, -1)),
            maskable=one.maskable.expand(4, -1),
            words=one.words if one.words is None else one.words.expand(4, -1),
            image_ids=several.image_ids,
            caption_ids=several.caption_ids,
            seeds=several.seeds,
        )
        system = build(name)
        check_finite(system, step(system, copies))

    def test_what_stands_at_padding_changes_nothing(self, name: str) -> None:
        """Neither other ids nor more of it: losses and gradients are the same."""
        batch = pairs(5)
        assert batch.text is not None and batch.maskable is not None and batch.words is not None
        other = torch.randint(0, WORDS, batch.text.ids.shape, generator=torch.Generator().manual_seed(9))
        dirty = batch.text._replace(ids=batch.text.ids.where(batch.text.mask, other))
        wider = batch.text._replace(
            ids=nn.functional.pad(batch.text.ids, (0, 3)), mask=nn.functional.pad(batch.text.mask, (0, 3))
        )
        more = {
            "maskable": nn.functional.pad(batch.maskable, (0, 3)),
            "words": nn.functional.pad(batch.words, (0, 3), value=-1),
        }
        results = []
        for changed in ({}, {"text": dirty}, {"text": wider, **more}):
            system = build(name)
            out = step(system, Batch(**{**vars(batch), **changed}))
            objective(out).backward()
            results.append((out, {key: p.grad for key, p in system.model.named_parameters()}))
        (clean, gradients), *others = results
        for out, theirs in others:
            for key, loss in clean.losses.items():
                assert torch.allclose(out.losses[key].total, loss.total, rtol=1e-5), key
                assert out.losses[key].count == loss.count
            for key, gradient in gradients.items():
                assert torch.allclose(theirs[key], gradient, atol=1e-5), key

    def test_bfloat16_keeps_losses_in_float32(self, name: str) -> None:
        system, batch = build(name), pairs(6)
        exact = step(system, batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = step(system, batch)
        for key, loss in out.losses.items():
            assert loss.total.dtype == torch.float32, key
            mean, expected = loss.total / loss.count, exact.losses[key].total / exact.losses[key].count
            assert math.isclose(mean.item(), expected.item(), rel_tol=0.05), key
        check_finite(system, out)

    @no_shape_checks()  # they take most of the time of a tiny model's step
    def test_learns_sixteen_pairs(self, name: str) -> None:
        """A few hundred steps are enough to know them by heart."""
        system, batch, wanted = build(name), pairs(16), TINY[name].learns
        optimizer = torch.optim.AdamW(system.model.parameters(), lr=2e-3)
        for _ in range(400):
            out = update(system, optimizer, batch)
            means = {key: (out.losses[key].total / out.losses[key].count).item() for key in wanted}
            if all(means[key] < limit for key, limit in wanted.items()):
                return
        pytest.fail(f"after 400 steps the losses are {means}")
