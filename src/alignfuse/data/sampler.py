"""Which samples make up each update, micro-batch and rank.

An epoch is a permutation of the samples, a function of (seed, epoch), cut into updates as equal in size as can be, each
update into micro-batches and each micro-batch into ranks in the same way. So every sample is seen once, all ranks take
the same number of micro-batches, none is empty, no leftover batch is tiny, and an update holds the same samples whether
its batch comes from one process, several, or accumulation.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from alignfuse.data.seeds import mix
from alignfuse.errors import UserError
from alignfuse.wording import counted


@dataclass(frozen=True, kw_only=True)
class EpochSampler:
    """The plan of every epoch for one rank.

    `batch_size` is the most that one rank takes in one micro-batch, `accumulation` the micro-batches of an update. Only
    at batch size 1 may a rank of several take two, where fewer samples are left than ranks.
    """

    samples: int
    batch_size: int
    seed: int
    accumulation: int = 1
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.accumulation < 1:
            raise UserError("batch_size and accumulation must be at least 1")
        if self.samples == 0:
            raise UserError("there is nothing to train on: the data has no sample for this split")
        if self.samples < self.world_size:
            raise UserError(f"{counted(self.samples, 'sample')} for {self.world_size} processes: some would have none")

    @property
    def updates(self) -> int:
        """Optimizer steps of an epoch."""
        full = self.batch_size * self.accumulation * self.world_size
        return min(-(-self.samples // full), self.samples // self.world_size)

    def groups(self, epoch: int, start: int = 0) -> Iterator[list[list[int]]]:
        """From update `start` of the epoch on, the micro-batches of each update: lists of this rank's samples."""
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(mix(self.seed, epoch)))
        for low, high in _cut(0, self.samples, self.updates)[start:]:
            micro_batches = _cut(low, high, min(self.accumulation, (high - low) // self.world_size))
            own = [_cut(low, high, self.world_size)[self.rank] for low, high in micro_batches]
            yield [order[low:high].tolist() for low, high in own]


def _cut(low: int, high: int, parts: int) -> list[tuple[int, int]]:
    """The range cut into parts whose sizes differ by at most one, the longer ones first."""
    size, longer = divmod(high - low, parts)
    bounds = [low + i * size + min(i, longer) for i in range(parts + 1)]
    return list(itertools.pairwise(bounds))
