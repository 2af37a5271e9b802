"""Every sample once, equal numbers of non-empty micro-batches on all ranks, whatever the sizes."""

import itertools

import pytest

from alignfuse.data.sampler import EpochSampler
from alignfuse.errors import UserError


def plan(samples: int, batch_size: int, accumulation: int = 1, world_size: int = 1, epoch: int = 0, start: int = 0):
    """Updates of all ranks: [rank][update][micro-batch][sample]."""
    return [
        list(
            EpochSampler(
                samples=samples,
                batch_size=batch_size,
                accumulation=accumulation,
                rank=rank,
                world_size=world_size,
                seed=1,
            ).groups(epoch, start)
        )
        for rank in range(world_size)
    ]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("accumulation", [1, 2, 5])
def test_nothing_is_lost_or_repeated_and_ranks_stay_in_step(world_size: int, accumulation: int) -> None:
    for samples, batch_size in itertools.product([world_size, 5, 7, 16, 33], [1, 2, 8]):
        ranks = plan(samples, batch_size, accumulation, world_size)
        flat = [sample for rank in ranks for update in rank for batch in update for sample in batch]
        assert sorted(flat) == list(range(samples))
        shapes = [[len(update) for update in rank] for rank in ranks]
        assert all(shape == shapes[0] for shape in shapes)
        sizes = [len(batch) for rank in ranks for update in rank for batch in update]
        assert min(sizes) >= 1
        assert max(sizes) <= max(batch_size, 2 if world_size > 1 else 1)


def test_seven_samples_on_two_ranks() -> None:
    first, second = plan(7, 2, world_size=2)
    assert [len(batch) for update in first for batch in update] == [2, 2]
    assert [len(batch) for update in second for batch in update] == [2, 1]


def test_no_tiny_last_batch() -> None:
    assert [len(update[0]) for update in plan(65, 64)[0]] == [33, 32]


@pytest.mark.parametrize(("batch_size", "accumulation", "world_size"), [(8, 1, 1), (2, 4, 1), (4, 1, 2), (2, 2, 2)])
def test_an_update_holds_the_same_samples_however_it_is_split(
    batch_size: int, accumulation: int, world_size: int
) -> None:
    whole = plan(29, 8)[0]
    ranks = plan(29, batch_size, accumulation, world_size)
    for update, parts in zip(whole, zip(*ranks, strict=True), strict=True):
        assert sorted(update[0]) == sorted(sample for part in parts for batch in part for sample in batch)


def test_epochs_differ_and_repeat_exactly() -> None:
    assert plan(20, 4, epoch=0) == plan(20, 4, epoch=0)
    assert plan(20, 4, epoch=0) != plan(20, 4, epoch=1)


def test_an_epoch_continues_where_it_stopped() -> None:
    assert plan(21, 2, 2, 2, epoch=3, start=2) == [rank[2:] for rank in plan(21, 2, 2, 2, epoch=3)]


def test_fewer_samples_than_processes_is_refused() -> None:
    with pytest.raises(UserError, match="2 samples for 3 processes"):
        plan(2, 1, world_size=3)
    with pytest.raises(UserError, match="nothing to train on"):
        plan(0, 1)
