"""ALBEF in the updater: accumulation with dropout on, and what is not a number."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from alignfuse.data.seeds import mix
from alignfuse.errors import UserError
from alignfuse.systems.albef import ALBEFSystem
from alignfuse.systems.protocols import Clock
from alignfuse.training.step import Updater, seed_everything
from tests.contract.setups import IMAGE, TEXT, TINY, build, draws, pairs
from tests.distributed.ranks import rows_of

CPU = torch.device("cpu")
CLOCK, SEED = Clock(7, 20, 0.5), 3


def make_updater(system: ALBEFSystem) -> tuple[Updater, dict[str, Tensor]]:
    """With the gradients that its optimizer is given."""
    updater = Updater(system, torch.optim.SGD(system.model.parameters(), lr=0.1), device=CPU, seed=SEED)
    seen: dict[str, Tensor] = {}

    def keep(*_: object) -> None:
        seen.update({n: p.grad.clone() for n, p in system.model.named_parameters() if p.grad is not None})

    updater.optimizer.register_step_pre_hook(keep)
    return updater, seen


def test_micro_batches_add_up_to_one_graph_with_dropout_on() -> None:
    """Four micro-batches of two, each with a backward pass of its own, and one backward pass through all four."""
    config = TINY["albef"].config
    config = replace(config, image=replace(IMAGE, dropout=0.3), text=replace(TEXT, dropout=0.3))
    system = build("albef", config=config)
    whole = pairs(8, image_ids=[0, 1, 2, 3, 3, 4, 5, 0])  # image 3 stands in two micro-batches
    group = [rows_of(whole, slice(start, start + 2)) for start in range(0, 8, 2)]
    system.after_step([system.teach(pairs(6, seed=1)).keys._asdict()])  # a queue that holds something
    other = copy.deepcopy(system)

    updater, accumulated = make_updater(system)
    means = updater.update(group, CLOCK)

    counts = updater.terms(group)
    seed_everything(mix(SEED, CLOCK.step, 0))
    other.before_step()
    lessons = [other.teach(batch) for batch in group]
    steps = [other(batch, lessons, own, CLOCK, draws(batch)) for own, batch in enumerate(group)]
    terms = {name: torch.stack([step.losses[name].total for step in steps]).sum() for name in counts}
    torch.stack([terms[name] / counts[name] for name in counts]).sum().backward()

    assert {name: means[f"loss/{name}"].total for name in counts} == pytest.approx(
        {name: total.item() for name, total in terms.items()}, rel=1e-6
    )
    assert accumulated.keys() == dict(other.model.named_parameters()).keys()
    for name, parameter in other.model.named_parameters():
        torch.testing.assert_close(accumulated[name], parameter.grad, rtol=1e-5, atol=1e-6, msg=name)

    seed_everything(SEED + 1)
    again = other(group[0], lessons, 0, CLOCK, draws(group[0])).losses["itc"].total
    assert abs((again - steps[0].losses["itc"].total).item()) > 1e-3  # dropout was on


def test_not_a_number_anywhere_stops_before_the_update_and_names_the_step() -> None:
    """Also where negatives are mined by it."""
    system = build("albef")
    with torch.no_grad():
        system.model.image_projection.linear.weight[0, 0] = float("nan")
    updater, seen = make_updater(system)
    before = system.model.match_head.weight.detach().clone()
    with pytest.raises(UserError, match="step 8: itc loss is nan; lower optimizer"):
        updater.update([pairs(4)], CLOCK)
    assert not seen and torch.equal(system.model.match_head.weight, before)
