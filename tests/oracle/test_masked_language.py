"""Masking and the masked-word loss: shares over many draws, what is never touched, the loss against loops."""

import math

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.data.batch import Batch
from alignfuse.objectives.masked_language import IGNORED, Masked, choose_places, corrupt, masked_language_loss
from alignfuse.systems.draws import RandomDraws
from alignfuse.systems.protocols import Masking

PAD, CLS, SEP, MASK = 0, 1, 2, 3
SPECIAL = (PAD, CLS, SEP, MASK)
VOCABULARY = 20
ORDINARY = torch.arange(len(SPECIAL), VOCABULARY)
ROWS, LENGTH = 2000, 12


def texts(seed: int = 0) -> Batch:
    """Rows of [CLS] words [SEP] padding, words of one to three pieces, every row of another length."""
    random = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(SPECIAL), VOCABULARY, (ROWS, LENGTH), generator=random)
    ends = torch.randint(2, LENGTH, (ROWS, 1), generator=random)
    place = torch.arange(LENGTH)[None]
    ids = ids.masked_fill(place == 0, CLS).masked_fill(place == ends, SEP).masked_fill(place > ends, PAD)
    maskable = (place > 0) & (place < ends)
    starts = torch.rand(ROWS, LENGTH, generator=random) < 0.5
    words = torch.where(maskable, starts.cumsum(1), -1)
    return Batch(
        text=Text(ids, place <= ends), maskable=maskable, words=words, seeds=torch.arange(ROWS) + 10_000 * seed
    )


def masked(batch: Batch, *, probability: float = 0.15, whole_word: bool = False) -> Masked:
    assert batch.seeds is not None
    return RandomDraws(batch.seeds).mask(batch, Masking(probability, whole_word, MASK, ORDINARY))


def ids_of(batch: Batch) -> Tensor:
    assert batch.text is not None
    return batch.text.ids


def within(share: float, expected: float, count: int) -> bool:
    """Inside four standard deviations of a binomial share."""
    return abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / count)


class TestShares:
    @pytest.mark.parametrize("whole_word", [False, True])
    def test_share_of_chosen_places(self, whole_word: bool) -> None:
        batch = texts()
        assert batch.maskable is not None
        chosen = masked(batch, whole_word=whole_word).labels != IGNORED
        count = int(batch.maskable.sum())
        assert abs(chosen.sum().item() / count - 0.15) < (0.02 if whole_word else 0.012)

    def test_eighty_ten_ten(self) -> None:
        batch = texts()
        result = masked(batch, probability=0.9)
        before, after = ids_of(batch)[result.labels != IGNORED], result.ids[result.labels != IGNORED]
        count = len(before)
        assert count > 8000
        assert within((after == MASK).float().mean().item(), 0.8, count)
        # a random word is the old one by accident once in 16
        assert within((after == before).float().mean().item(), 0.1 + 0.1 / 16, count)
        assert within(((after != before) & (after != MASK)).float().mean().item(), 0.1 * 15 / 16, count)

    def test_random_words_are_uniform_and_never_special(self) -> None:
        batch = texts()
        result = masked(batch, probability=0.9)
        replaced = (result.labels != IGNORED) & (result.ids != ids_of(batch)) & (result.ids != MASK)
        drawn = result.ids[replaced]
        assert not torch.isin(drawn, torch.tensor(SPECIAL)).any()
        counts = torch.bincount(drawn, minlength=VOCABULARY)[len(SPECIAL) :]
        expected = len(drawn) / len(ORDINARY)
        chi_square = ((counts - expected) ** 2 / expected).sum().item()
        assert chi_square < 39.3  # 0.1% point at 15 degrees of freedom

    def test_the_ends_of_the_random_range_are_words(self) -> None:
        ids, chosen, action = torch.tensor([[5, 5]]), torch.ones(1, 2, dtype=torch.bool), torch.full((1, 2), 0.85)
        draws = torch.tensor([[0.0, 1.0 - 1e-9]])  # rounds to 1.0 in float32
        result = corrupt(ids, chosen, action, draws, mask_id=MASK, ordinary=ORDINARY)
        assert result.ids.tolist() == [[4, 19]]


class TestPlaces:
    @pytest.mark.parametrize("whole_word", [False, True])
    @pytest.mark.parametrize("probability", [0.15, 1.0])
    def test_specials_and_padding_are_never_touched(self, whole_word: bool, probability: float) -> None:
        batch = texts()
        assert batch.maskable is not None
        result = masked(batch, probability=probability, whole_word=whole_word)
        fixed = ~batch.maskable
        assert torch.equal(result.ids[fixed], ids_of(batch)[fixed])
        assert (result.labels[fixed] == IGNORED).all()

    def test_labels_are_the_words_that_stood_there(self) -> None:
        batch = texts()
        result = masked(batch)
        chosen = result.labels != IGNORED
        assert torch.equal(result.labels[chosen], ids_of(batch)[chosen])
        assert torch.equal(result.ids[~chosen], ids_of(batch)[~chosen])
        assert torch.equal(ids_of(batch).flatten()[result.where()], result.labels[chosen])

    def test_probability_one_and_zero(self) -> None:
        batch = texts()
        assert batch.maskable is not None
        assert torch.equal(masked(batch, probability=1.0).labels != IGNORED, batch.maskable)
        assert len(masked(batch, probability=0.0).where()) == 0

    def test_a_whole_word_is_chosen_with_all_its_pieces(self) -> None:
        batch = texts()
        assert batch.maskable is not None and batch.words is not None
        chosen = masked(batch, probability=0.3, whole_word=True).labels != IGNORED
        partly = 0
        for row, words, maskable in zip(chosen.tolist(), batch.words.tolist(), batch.maskable.tolist(), strict=True):
            for word in set(words):
                pieces = [c for c, w, m in zip(row, words, maskable, strict=True) if w == word and m]
                assert len(set(pieces)) <= 1
                partly += len(pieces) > 1 and pieces[0]
        assert partly > 100  # words of several pieces were chosen

    def test_single_pieces_are_chosen_without_the_option(self) -> None:
        batch = texts()
        assert batch.words is not None
        chosen = masked(batch, probability=0.5).labels != IGNORED
        neighbours = (batch.words[:, 1:] == batch.words[:, :-1]) & (batch.words[:, 1:] >= 0)
        assert (chosen[:, 1:] != chosen[:, :-1])[neighbours].any()

    def test_by_hand(self) -> None:
        chance = torch.tensor([[0.9, 0.1, 0.9, 0.2, 0.1]])
        maskable = torch.tensor([[False, True, True, True, False]])
        words = torch.tensor([[-1, 0, 0, 1, -1]])
        assert choose_places(maskable, chance, 0.15).tolist() == [[False, True, False, False, False]]
        assert choose_places(maskable, chance, 0.15, words).tolist() == [[False, True, True, False, False]]

    def test_actions_by_hand(self) -> None:
        ids = torch.tensor([[10, 11, 12, 13, 14]])
        chosen = torch.tensor([[True, True, True, True, False]])
        action = torch.tensor([[0.0, 0.79, 0.8, 0.9, 0.0]])
        result = corrupt(ids, chosen, action, torch.full((1, 5), 0.5), mask_id=MASK, ordinary=ORDINARY)
        assert result.ids.tolist() == [[MASK, MASK, 12, 13, 14]]  # 0.5 of the 16 words from 4 on is word 12
        assert result.labels.tolist() == [[10, 11, 12, 13, IGNORED]]
        assert result.where().tolist() == [0, 1, 2, 3]


class TestLoss:
    def test_equals_loops(self) -> None:
        random = torch.Generator().manual_seed(0)
        logits, labels = 3 * torch.randn(6, 9, generator=random), torch.randint(9, (6,), generator=random)
        expected = sum(
            math.log(sum(math.exp(x) for x in row)) - row[label]
            for row, label in zip(logits.double().tolist(), labels.tolist(), strict=True)
        )
        assert masked_language_loss(logits, labels).item() == pytest.approx(expected, rel=1e-5)

    def test_no_masked_place_is_a_zero_that_stays_attached(self) -> None:
        head = torch.nn.Linear(4, 9)
        loss = masked_language_loss(head(torch.zeros(0, 4)), torch.zeros(0, dtype=torch.long))
        loss.backward()
        assert loss.item() == 0.0
        assert head.weight.grad is not None and torch.equal(head.weight.grad, torch.zeros(9, 4))

    def test_float32_from_half_precision(self) -> None:
        loss = masked_language_loss(torch.zeros(300, 50, dtype=torch.bfloat16), torch.zeros(300, dtype=torch.long))
        assert loss.dtype == torch.float32
        assert loss.item() == pytest.approx(300 * math.log(50), rel=1e-5)
