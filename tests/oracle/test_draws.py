"""Random choices: uniform, and a function of nothing but (sample seed, name, place)."""

import math
import zlib

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.data.batch import Batch
from alignfuse.objectives.masked_language import Masked
from alignfuse.systems.draws import GivenDraws, RandomDraws, uniform
from alignfuse.systems.protocols import Draws, Masking

MASKING = Masking(0.4, False, 3, torch.arange(4, 50))


def texts(rows: int, length: int) -> Batch:
    ids = torch.randint(4, 50, (rows, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(rows, length, dtype=torch.bool)
    return Batch(text=Text(ids, mask), maskable=mask, seeds=1000 + 7 * torch.arange(rows))


def take(batch: Batch, rows: Tensor | list[int], length: int) -> Batch:
    """Some rows of a batch, padded to another length with places that may not be masked."""
    assert batch.text is not None and batch.maskable is not None and batch.seeds is not None
    more = length - batch.text.ids.shape[1]
    ids = torch.nn.functional.pad(batch.text.ids[rows], (0, more))
    mask = torch.nn.functional.pad(batch.text.mask[rows], (0, more))
    return Batch(text=Text(ids, mask), maskable=mask, seeds=batch.seeds[rows])


def mask(batch: Batch) -> Masked:
    assert batch.seeds is not None
    return RandomDraws(batch.seeds).mask(batch, MASKING)


def finalise(x: int) -> int:
    """Steele et al. 2014, figure 16."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


def number(seed: int, name: str, place: int) -> float:
    """The draw of one place: the start is a hash of seed and name, the place a step of the golden ratio."""
    start = finalise((seed ^ ((zlib.crc32(name.encode()) * 0x9E3779B1) % 2**63)) % 2**64)
    return (finalise((start + (place + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 11) / 2**53


class TestUniform:
    @pytest.mark.parametrize(
        "seeds", [torch.arange(400), torch.arange(400) << 40, torch.arange(400) - 200], ids=["low", "high", "signed"]
    )
    def test_even_over_the_unit_interval(self, seeds: Tensor) -> None:
        """Chi-square over 20 bins of 40,000 numbers, along rows and along columns."""
        numbers = uniform(seeds, "some", 100)
        assert numbers.dtype == torch.float64 and numbers.min() >= 0 and numbers.max() < 1
        counts = torch.histc(numbers.float(), 20, 0, 1)
        assert ((counts - 2000) ** 2 / 2000).sum() < 43.8  # 0.1% point at 19 degrees of freedom
        for means in (numbers.mean(0), numbers.mean(1)):  # of 400 and of 100 numbers
            spread = math.sqrt(1 / 12 / (numbers.numel() / len(means)))
            assert (means - 0.5).abs().max() < 4.5 * spread

    def test_neighbours_do_not_depend_on_each_other(self) -> None:
        numbers = uniform(torch.arange(400), "some", 100) - 0.5
        for lag in (numbers[:, 1:] * numbers[:, :-1], numbers[1:] * numbers[:-1]):
            assert abs(lag.mean().item()) * 12 < 4.5 / math.sqrt(lag.numel())

    def test_names_are_independent(self) -> None:
        seeds = torch.arange(400)
        one, other = (uniform(seeds, name, 100) - 0.5 for name in ("mine.image_for_text", "mine.text_for_image"))
        assert abs((one * other).mean().item()) * 12 < 4.5 / math.sqrt(one.numel())
        assert not torch.isin(one, other).any()

    def test_equals_python_integers(self) -> None:
        """SplitMix64 on whole numbers of any size, cut to 64 bits."""
        seeds = [0, 1, 2**62 + 12345, -1]
        expected = [[number(seed, "mask.c", place) for place in range(3)] for seed in seeds]
        assert uniform(torch.tensor(seeds), "mask.c", 3).tolist() == expected


class TestIndependence:
    def test_masks_follow_the_sample_through_order_batch_and_padding(self) -> None:
        batch = texts(16, 10)
        whole = mask(batch)
        order = torch.randperm(16, generator=torch.Generator().manual_seed(1))
        moved = mask(take(batch, order, 14))
        assert torch.equal(moved.ids[:, :10], whole.ids[order]) and torch.equal(
            moved.labels[:, :10], whole.labels[order]
        )
        alone = mask(take(batch, [5], 10))
        assert torch.equal(alone.ids, whole.ids[5:6])

    def test_mining_follows_the_sample(self) -> None:
        weights = torch.rand(8, 5, generator=torch.Generator().manual_seed(0))
        seeds = 100 + torch.arange(8)
        whole = RandomDraws(seeds).mine("image_for_text", weights)
        order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
        assert torch.equal(RandomDraws(seeds[order]).mine("image_for_text", weights[order]), whole[order])

    def test_no_draw_shifts_another(self) -> None:
        batch, weights = texts(64, 10), torch.ones(64, 64)
        assert batch.seeds is not None
        draws = RandomDraws(batch.seeds)
        first = draws.mine("text_for_image", weights)
        draws.mask(batch, MASKING)
        assert torch.equal(draws.mine("text_for_image", weights), first)
        assert not torch.equal(draws.mine("image_for_text", weights), first)

    def test_another_seed_gives_other_draws(self) -> None:
        batch = texts(64, 10)
        assert batch.seeds is not None
        other = Batch(text=batch.text, maskable=batch.maskable, seeds=batch.seeds + 1)
        assert not torch.equal(mask(batch).ids, mask(other).ids)


class TestMining:
    def test_drawn_in_proportion_to_the_weights(self) -> None:
        count = 20_000
        weights = torch.tensor([[0.0, 0.5, 0.0, 0.3, 0.2, 0.0]])
        drawn = RandomDraws(torch.arange(count)).mine("some", weights.expand(count, -1))
        shares = torch.bincount(drawn, minlength=6) / count
        assert shares[[0, 2, 5]].tolist() == [0.0, 0.0, 0.0]
        assert torch.allclose(shares, weights[0], atol=4 * math.sqrt(0.25 / count))

    def test_weights_need_not_sum_to_one(self) -> None:
        weights = torch.tensor([[1e-30, 0.0, 3e-30]]).expand(5000, -1)
        shares = torch.bincount(RandomDraws(torch.arange(5000)).mine("some", weights), minlength=3) / 5000
        assert abs(shares[0].item() - 0.25) < 0.03 and shares[1] == 0

    def test_a_row_without_mass_gives_an_index_that_exists(self) -> None:
        drawn = RandomDraws(torch.arange(4)).mine("some", torch.zeros(4, 3))
        assert ((drawn >= 0) & (drawn < 3)).all()


class TestGivenDraws:
    def test_gives_what_it_was_given_and_keeps_the_weights(self) -> None:
        fixed = Masked(torch.tensor([[5]]), torch.tensor([[6]]))
        draws = GivenDraws(fixed, {"text_for_image": torch.tensor([1, 0])})
        weights = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        assert draws.mask(texts(1, 1), MASKING) is fixed
        assert draws.mine("text_for_image", weights).tolist() == [1, 0]
        assert draws.weights == {"text_for_image": weights}

    def test_nothing_given_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no masks"):
            GivenDraws().mask(texts(1, 1), MASKING)

    def test_both_are_draws(self) -> None:
        assert isinstance(GivenDraws(), Draws) and isinstance(RandomDraws(torch.arange(1)), Draws)


def test_masking_needs_places() -> None:
    with pytest.raises(ValueError, match="places that may be masked"):
        RandomDraws(torch.arange(1)).mask(Batch(text=texts(1, 3).text), MASKING)
