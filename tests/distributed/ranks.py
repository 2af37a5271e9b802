"""What each rank does in test_two_processes.py; the same functions, called alone, give the numbers to compare with.

torchrun --nproc-per-node 2 tests/distributed/ranks.py PAIRS OUT
"""

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from alignfuse.data.batch import Batch
from alignfuse.data.records import Record
from alignfuse.systems.draws import RandomDraws
from alignfuse.systems.protocols import Clock, Text
from alignfuse.training import distributed, step
from alignfuse.training.loop import fit
from alignfuse.training.settings import TrainingConfig
from alignfuse.training.step import Updater
from tests.contract.setups import build, pairs
from tests.training.fake import FakeSystem, make_loader, make_records, make_tokenizer

CPU = torch.device("cpu")
Numbers = dict[str, Any]


class Gathering(nn.Module):
    """A loss in which every row meets the rows of all ranks, both with gradient."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 4)

    def forward(self, rows: Tensor) -> Tensor:
        features = self.layer(rows).tanh()
        return torch.logsumexp(features @ distributed.gather(features).T, dim=1).sum()


def gathered_gradients(cuts: Sequence[int]) -> Numbers:
    """Of five rows that lie on the ranks as `cuts` says."""
    rows = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    own = rows.split(list(cuts))[distributed.rank()]
    module = Gathering()
    wrapped = distributed.parallel(module, CPU)
    (wrapped(own) / 5 * distributed.world_size()).backward()
    everything = distributed.gather(torch.arange(len(own)) + 10 * distributed.rank())
    return {
        "gradient": module.layer.weight.grad,
        "ids": everything,
        "first": distributed.first_row(len(own)),
        "total": distributed.total_counts({"rows": len(own), "ones": 1}),
    }


def rows_of(batch: Batch, rows: slice) -> Batch:
    """Some rows of a batch."""
    cut = {field.name: getattr(batch, field.name) for field in fields(batch)}
    text = Text(batch.text.ids[rows], batch.text.mask[rows]) if batch.text is not None else None
    return Batch(
        **{name: None if value is None else value[rows] for name, value in cut.items() if name != "text"}, text=text
    )


def albef_steps(cuts: Sequence[int], *, draws: type[RandomDraws] = RandomDraws) -> Numbers:
    """Losses and gradients of three updates on five pairs each, with two micro-batches in the last."""
    system = build("albef", queue_size=8, respect_ids=True, ramp_epochs=0.0)
    updater = Updater(system, torch.optim.SGD(system.parameters(), lr=0.05), device=CPU)
    gradients: list[dict[str, Tensor]] = []

    def keep(*_: object) -> None:
        gradients.append({name: p.grad.clone() for name, p in system.named_parameters() if p.grad is not None})

    updater.optimizer.register_step_pre_hook(keep)
    start = sum(cuts[: distributed.rank()])
    own = slice(start, start + list(cuts)[distributed.rank()])
    step.RandomDraws, before = draws, step.RandomDraws
    losses = []
    for i, seeds in enumerate(([0], [1], [2, 3])):
        group = [rows_of(pairs(5, seed=seed, image_ids=[0, 1, 2, 2, 3]), own) for seed in seeds]
        means = updater.update(group, Clock(i, 3, i / 3))
        losses.append({name: float(mean) for name, mean in means.items()})
    step.RandomDraws = before
    return {"losses": losses, "gradients": gradients, "queue": system.queue.state_dict()}


class Halved(RandomDraws):
    """Mines within the first three and the last two pairs apart, as two ranks do."""

    def mine(self, name: str, weights: Tensor) -> Tensor:
        half = torch.arange(len(weights)) < 3
        return super().mine(name, weights * (half[:, None] == half[None, :]))


class Interrupted(FakeSystem):
    """Rank 1 is asked to stop in its third step."""

    steps = 0

    def after_step(self, carries: Sequence[dict[str, Tensor]]) -> None:
        super().after_step(carries)
        self.steps += 1
        if self.steps == 3 and distributed.rank() == distributed.world_size() - 1:
            os.kill(os.getpid(), signal.SIGTERM)


def train(
    records: list[Record],
    out: Path,
    config: TrainingConfig,
    *,
    kind: type[FakeSystem] = FakeSystem,
    resume: bool = False,
) -> Numbers:
    """A run of the small system; gives its end and its state."""
    out.mkdir(parents=True, exist_ok=True)
    system = kind(make_tokenizer(), dropout=0.0, seed=distributed.rank())  # DDP hands out the weights of rank 0
    loader = make_loader(records, config)
    seen = [number for group in loader.groups(0, loader.updates) for part in group for number in ids(part.batch)]
    result = fit(system, loader, config, out, device=CPU, resume=resume)
    return {"result": tuple(result), "seen": seen, "state": system.state_dict()}


def ids(batch: Batch) -> list[int]:
    """Image ids as numbers."""
    assert batch.image_ids is not None
    return batch.image_ids.tolist()


SEVEN = TrainingConfig(batch_size=2, epochs=2, workers=0, log_steps=1)
UNEVEN = TrainingConfig(batch_size=2, accumulation=2, epochs=2, workers=0, log_steps=1, clip_norm=1.0)


def main(folder: Path, out: Path) -> None:
    """Everything, one after the other, so that the processes start only once."""
    with distributed.processes("cpu"):
        records = make_records(folder, 22)
        damaged = [*records[:-1], replace(records[-1], image=folder / "no such file.png")]
        found = {
            "gather": gathered_gradients([3, 2]),
            "albef": albef_steps([3, 2]),
            "seven": train(records[:7], out / "seven", SEVEN),
            "uneven": train(records, out / "uneven", UNEVEN),
            "bad": train(damaged, out / "bad", SEVEN),
            "stopped": train(records, out / "stopped", UNEVEN, kind=Interrupted),
            "resumed": train(records, out / "stopped", UNEVEN, resume=True),
        }
        torch.save(found, out / f"rank{distributed.rank()}.pt")
        distributed.barrier()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
