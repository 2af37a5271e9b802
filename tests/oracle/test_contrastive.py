"""The contrastive loss against loops and against values worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from alignfuse.objectives.contrastive import (
    contrastive_loss,
    equal_targets,
    positive_pairs,
    scaled_similarity,
)

NONE_SHARED = torch.empty(0, dtype=torch.long)
UNKNOWN = -1


def pair(image: int, caption: int) -> int:
    return image * 2**32 + caption


def positives_in_loops(images: list[int], owners: list[int], captions: list[int], shared: list[int]) -> Tensor:
    """True where the text is the image's own, or where its caption also stands under the image."""
    table = torch.zeros(len(images), len(owners), dtype=torch.bool)
    for i, image in enumerate(images):
        for t, (owner, caption) in enumerate(zip(owners, captions, strict=True)):
            own = image == owner and image >= 0
            also = image >= 0 and caption >= 0 and pair(image, caption) in shared
            table[i, t] = own or also
    return table


def loss_in_loops(logits: Tensor, targets: Tensor, valid: Tensor) -> float:
    """Sum over rows and valid keys of -target * log(exp(logit) / sum of exp over valid keys), in Python floats."""
    total = 0.0
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        keys = [k for k, is_key in enumerate(valid.tolist()) if is_key]
        top = max(row[k] for k in keys)
        normaliser = top + math.log(sum(math.exp(row[k] - top) for k in keys))
        total -= sum(target[k] * (row[k] - normaliser) for k in keys)
    return total


def targets_of(ids: list[int], captions: list[int] | None = None, shared: list[int] | None = None) -> Tensor:
    images = torch.tensor(ids)
    own = torch.tensor(captions if captions is not None else [UNKNOWN] * len(ids))
    return equal_targets(positive_pairs(images, images, own, torch.tensor(sorted(shared or []), dtype=torch.long)))


class TestPositives:
    def test_several_pairs_of_one_image_share_the_mass(self) -> None:
        expected = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
        assert torch.equal(targets_of([7, 7, 9]), expected)

    def test_a_caption_under_two_images_belongs_to_both(self) -> None:
        # image 4 has caption 0; image 5 has captions 0 and 1; image 6 has caption 2
        shared = [pair(4, 0), pair(5, 0)]
        assert targets_of([4, 5, 6], [0, 1, 2], shared).tolist() == [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
        assert targets_of([4, 5, 6], [0, 0, 2], shared).tolist() == [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]

    def test_the_same_caption_number_is_no_match_by_itself(self) -> None:
        """Only pairs that the data set lists count: caption 0 does not stand under image 6."""
        assert not positive_pairs(
            torch.tensor([6]), torch.tensor([4]), torch.tensor([0]), torch.tensor([pair(4, 0), pair(5, 0)])
        ).any()

    @pytest.mark.parametrize("unknown", [-1, -100])
    def test_an_unknown_id_equals_nothing(self, unknown: int) -> None:
        images = torch.tensor([unknown, 3, unknown])
        captions = torch.tensor([unknown, unknown, 2])
        shared = torch.tensor([pair(3, 1), pair(8, 1)])
        table = positive_pairs(images, images, captions, shared)
        assert table.tolist() == [[False] * 3, [False, True, False], [False] * 3]

    def test_an_unknown_caption_is_not_the_pair_that_stands_one_below(self) -> None:
        """image * 2^32 - 1 is the number of (image - 1, 2^32 - 1): no arithmetic accident may make a positive."""
        shared = torch.tensor([pair(2, 2**32 - 1), pair(5, 0)])
        assert not positive_pairs(torch.tensor([3]), torch.tensor([9]), torch.tensor([UNKNOWN]), shared).any()

    def test_large_ids(self) -> None:
        image, caption = 2**30, 2**31 + 5
        shared = torch.tensor([pair(1, caption), pair(image, caption)])
        table = positive_pairs(torch.tensor([image, image - 1]), torch.tensor([1]), torch.tensor([caption]), shared)
        assert table.tolist() == [[True], [False]]

    @pytest.mark.parametrize("seed", range(20))
    def test_equals_loops(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)

        def draw(low: int, high: int, count: int) -> list[int]:
            return torch.randint(low, high, (count,), generator=random).tolist()

        images, owners, captions = draw(-1, 5, 6), draw(-1, 5, 9), draw(-1, 4, 9)
        shared = sorted({pair(i, c) for i, c in zip(draw(0, 5, 6), draw(0, 4, 6), strict=True)})
        table = positive_pairs(torch.tensor(images), torch.tensor(owners), torch.tensor(captions), torch.tensor(shared))
        assert torch.equal(table, positives_in_loops(images, owners, captions, shared))


class TestTargets:
    def test_rows_sum_to_one(self) -> None:
        random = torch.Generator().manual_seed(0)
        positive = torch.rand(50, 70, generator=random) < 0.2
        positive[:, :50].fill_diagonal_(True)
        assert torch.allclose(equal_targets(positive).sum(1), torch.ones(50), atol=1e-6)

    def test_a_row_without_positive_is_empty_and_finite(self) -> None:
        assert equal_targets(torch.tensor([[False, False], [True, True]])).tolist() == [[0.0, 0.0], [0.5, 0.5]]


class TestLoss:
    def test_by_hand(self) -> None:
        """Two rows over (2, 0) and (0, 2): each -log(e^2 / (e^2 + 1)) = log(1 + e^-2)."""
        logits = torch.tensor([[2.0, 0.0], [0.0, 2.0]])
        loss = contrastive_loss(logits, torch.eye(2), torch.ones(2, dtype=torch.bool))
        assert loss.item() == pytest.approx(2 * math.log(1 + math.exp(-2)), abs=1e-6)

    def test_soft_targets_by_hand(self) -> None:
        """0.75 and 0.25 over logits (log 3, 0): probabilities equal the targets, so the loss is their entropy."""
        logits = torch.tensor([[math.log(3.0), 0.0]])
        loss = contrastive_loss(logits, torch.tensor([[0.75, 0.25]]), torch.ones(2, dtype=torch.bool))
        assert loss.item() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-6)

    @pytest.mark.parametrize("seed", range(10))
    def test_equals_loops(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        logits = 5 * torch.randn(6, 11, generator=random)
        valid = torch.rand(11, generator=random) < 0.6
        valid[:6] = True  # the batch's own keys
        positive = (torch.rand(6, 11, generator=random) < 0.3) & valid
        positive[:, :6].fill_diagonal_(True)
        targets = equal_targets(positive)
        loss = contrastive_loss(logits, targets, valid)
        assert loss.item() == pytest.approx(loss_in_loops(logits, targets, valid), rel=1e-5)

    def test_perfect_logits_cost_nothing(self) -> None:
        loss = contrastive_loss(1000 * torch.eye(5), torch.eye(5), torch.ones(5, dtype=torch.bool))
        assert loss.item() == 0.0

    def test_equal_logits_cost_the_logarithm_of_the_keys(self) -> None:
        loss = contrastive_loss(torch.full((4, 9), 3.0), torch.eye(4, 9), torch.ones(9, dtype=torch.bool))
        assert loss.item() == pytest.approx(4 * math.log(9), rel=1e-6)

    def test_keys_that_are_not_valid_do_not_exist(self) -> None:
        """Loss and gradient are those of the batch alone, whatever lies in the empty slots."""
        random = torch.Generator().manual_seed(0)
        logits = torch.randn(4, 4, generator=random)
        alone, beside = logits.clone().requires_grad_(), torch.cat([logits, torch.full((4, 3), 50.0)], 1)
        beside.requires_grad_()
        targets = targets_of([0, 0, 1, 2])
        valid = torch.tensor([True] * 4 + [False] * 3)
        contrastive_loss(alone, targets, torch.ones(4, dtype=torch.bool)).backward()
        loss = contrastive_loss(beside, torch.cat([targets, torch.zeros(4, 3)], 1), valid)
        loss.backward()
        assert loss.item() == pytest.approx(loss_in_loops(logits, targets, valid[:4]), rel=1e-6)
        assert alone.grad is not None and beside.grad is not None
        assert torch.allclose(beside.grad[:, :4], alone.grad, atol=1e-7)
        assert torch.equal(beside.grad[:, 4:], torch.zeros(4, 3))

    @pytest.mark.parametrize("temperature", [1e-4, 1e-3, 0.07, 0.5, 1e4])
    def test_extreme_temperatures_stay_finite(self, temperature: float) -> None:
        random = torch.Generator().manual_seed(0)
        features = torch.nn.functional.normalize(torch.randn(8, 16, generator=random), dim=1).requires_grad_()
        scale = torch.tensor(temperature, requires_grad=True)
        logits = scaled_similarity(features, features.detach().flip(0), scale)  # the own key is not the nearest
        loss = contrastive_loss(logits, torch.eye(8), torch.ones(8, dtype=torch.bool))
        loss.backward()
        assert features.grad is not None and scale.grad is not None
        assert loss.isfinite() and features.grad.isfinite().all() and scale.grad.isfinite()


class TestSimilarity:
    def test_by_hand(self) -> None:
        queries, keys = torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0], [0.6, 0.8]])
        similarity = scaled_similarity(queries, keys, torch.tensor(0.5))
        assert torch.allclose(similarity, torch.tensor([[1.2, 2.0]]))

    def test_float32_under_autocast(self) -> None:
        random = torch.Generator().manual_seed(0)
        queries, keys = torch.randn(4, 64, generator=random), torch.randn(5, 64, generator=random)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            similarity = scaled_similarity(queries, keys, torch.tensor(0.01))
        assert similarity.dtype == torch.float32
        assert torch.allclose(similarity, queries @ keys.T / 0.01, rtol=1e-5)
