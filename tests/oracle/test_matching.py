"""Hard negatives and the matching loss against loops and values worked out by hand."""

import math

import pytest
import torch
from torch import Tensor

from alignfuse.objectives.matching import matching_loss, mining_weights, nearest_share, uniform_weights
from alignfuse.systems.draws import RandomDraws


def weights_in_loops(logits: Tensor, positive: Tensor) -> Tensor:
    """Softmax over the candidates that are no positives, one row at a time."""
    weights = torch.zeros_like(logits, dtype=torch.float64)
    for i, row in enumerate(logits.double().tolist()):
        others = [j for j in range(len(row)) if not positive[i, j]]
        if others:
            top = max(row[j] for j in others)
            mass = {j: math.exp(row[j] - top) for j in others}
            for j in others:
                weights[i, j] = mass[j] / sum(mass.values())
    return weights.float()


class TestMiningWeights:
    def test_by_hand(self) -> None:
        """Of the two negatives, logits log 3 and 0: three quarters and one quarter; the positive's 9 plays no part."""
        logits = torch.tensor([[9.0, math.log(3.0), 0.0]])
        weights = mining_weights(logits, torch.tensor([[True, False, False]]))
        assert torch.allclose(weights, torch.tensor([[0.0, 0.75, 0.25]]))

    @pytest.mark.parametrize("seed", range(10))
    def test_equals_loops(self, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        logits = 10 * torch.randn(7, 7, generator=random)
        positive = (torch.rand(7, 7, generator=random) < 0.3) | torch.eye(7, dtype=torch.bool)
        assert torch.allclose(mining_weights(logits, positive), weights_in_loops(logits, positive), atol=1e-6)

    @pytest.mark.parametrize("scale", [1e3, 1e6, 1e30])
    def test_positives_leave_before_the_softmax(self, scale: float) -> None:
        """At a sharp temperature the positive takes all mass of a plain softmax, and zeroing it would leave nothing."""
        weights = mining_weights(scale * torch.eye(4), torch.eye(4, dtype=torch.bool))
        expected = (1 - torch.eye(4)) / 3
        assert torch.allclose(weights, expected)
        drawn = RandomDraws(torch.arange(200)).mine("text_for_image", weights.repeat(50, 1))
        assert (drawn != torch.arange(4).repeat(50)).all()

    def test_half_precision_logits_are_weighed_in_float32(self) -> None:
        logits = (6e4 * torch.eye(4)).half()
        weights = mining_weights(logits, torch.eye(4, dtype=torch.bool))
        assert weights.dtype == torch.float32
        assert torch.allclose(weights.sum(1), torch.ones(4))

    @pytest.mark.parametrize("ids", [[5], [5, 5, 5, 5]])
    def test_no_candidate_no_mass(self, ids: list[int]) -> None:
        """A batch of one pair, or of one image: nothing to draw, nothing that is not finite."""
        images = torch.tensor(ids)
        positive = images[:, None] == images[None]
        for weights in (mining_weights(torch.randn(len(ids), len(ids)), positive), uniform_weights(positive)):
            assert torch.equal(weights, torch.zeros(len(ids), len(ids)))

    def test_no_gradient_flows_into_mining(self) -> None:
        logits = torch.randn(3, 3, requires_grad=True)
        assert not mining_weights(logits, torch.eye(3, dtype=torch.bool)).requires_grad

    def test_own_positives_are_never_drawn(self) -> None:
        """1,000 draws a row from ids that repeat, with logits that favour the positives."""
        ids = torch.tensor([7, 7, 9, 9, 9, 3])
        positive = ids[:, None] == ids[None]
        for weights in (mining_weights(50.0 * positive, positive), uniform_weights(positive)):
            drawn = RandomDraws(torch.arange(6000)).mine("image_for_text", weights.repeat(1000, 1))
            assert (ids[drawn] != ids.repeat(1000)).all()

    def test_nan_is_carried_on(self) -> None:
        """A NaN in the similarities gives an index that exists, so that the loop can stop and name the step."""
        logits = torch.full((3, 3), math.nan)
        weights = mining_weights(logits, torch.eye(3, dtype=torch.bool))
        drawn = RandomDraws(torch.arange(3)).mine("text_for_image", weights)
        assert weights.isnan().any() and ((drawn >= 0) & (drawn < 3)).all()


class TestUniformWeights:
    def test_by_hand(self) -> None:
        positive = torch.tensor([[True, False, False, False], [True, True, False, False]])
        expected = torch.tensor([[0.0, 1 / 3, 1 / 3, 1 / 3], [0.0, 0.0, 0.5, 0.5]])
        assert torch.allclose(uniform_weights(positive), expected)


class TestNearestShare:
    def test_by_hand(self) -> None:
        """Of 5 negatives the nearest quarter, rounded up, is 2: columns 5 and 3."""
        logits = torch.tensor([[99.0, 1.0, 2.0, 4.0, 3.0, 5.0]])
        positive = torch.tensor([[True] + [False] * 5])
        weights = torch.tensor([[0.0, 0.1, 0.2, 0.3, 0.15, 0.25]])
        assert nearest_share(weights, logits, positive).item() == pytest.approx(0.55)

    def test_random_negatives_have_a_quarter(self) -> None:
        positive = torch.zeros(3, 9, dtype=torch.bool)
        positive[:, 0] = True
        share = nearest_share(uniform_weights(positive), torch.randn(3, 9), positive)
        assert torch.allclose(share, torch.full((3,), 0.25))

    def test_sharp_mining_has_all(self) -> None:
        positive = torch.eye(8, dtype=torch.bool)
        logits = 100 * torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
        assert nearest_share(mining_weights(logits, positive), logits, positive).min() > 0.99

    def test_a_row_without_negatives_counts_nothing(self) -> None:
        positive = torch.ones(2, 2, dtype=torch.bool)
        weights = mining_weights(torch.zeros(2, 2), positive)
        assert nearest_share(weights, torch.zeros(2, 2), positive).tolist() == [0.0, 0.0]


class TestLoss:
    def test_by_hand(self) -> None:
        """A match with logits (0, log 3) costs log 4/3, a mismatch with the same logits log 4."""
        logits = torch.tensor([[0.0, math.log(3.0)], [0.0, math.log(3.0)]])
        loss = matching_loss(logits, torch.tensor([1, 0]), torch.ones(2, dtype=torch.bool))
        assert loss.item() == pytest.approx(math.log(4 / 3) + math.log(4), abs=1e-6)

    def test_pairs_that_are_not_valid_cost_nothing(self) -> None:
        logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).requires_grad_()
        labels, valid = torch.tensor([1, 1, 0, 0]), torch.tensor([True, True, False, False])
        loss = matching_loss(logits, labels, valid)
        loss.backward()
        assert loss.item() == pytest.approx(matching_loss(logits[:2].detach(), labels[:2], valid[:2]).item(), rel=1e-6)
        assert logits.grad is not None
        assert torch.equal(logits.grad[2:], torch.zeros(2, 2)) and logits.grad[:2].abs().min() > 0

    def test_a_constant_answer_costs_the_entropy_of_the_labels(self) -> None:
        """One true pair to two false ones: the best constant is (2/3, 1/3) and costs 0.6365 nats a pair."""
        pairs = 8
        logits = torch.tensor([[math.log(2.0), 0.0]]).expand(3 * pairs, 2)
        labels = torch.cat([torch.ones(pairs), torch.zeros(2 * pairs)]).long()
        loss = matching_loss(logits, labels, torch.ones(3 * pairs, dtype=torch.bool)) / (3 * pairs)
        assert loss.item() == pytest.approx(0.6365, abs=5e-5)
