"""Attention against explicit loops: masks, memories, padding and packing."""

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.attention import Attention, KeyValue, Packing, attention_mask
from tests.blocks.restated import cross_attention, randomised, self_attention

B, L, S, D, M, HEADS = 3, 5, 4, 8, 6, 2
REAL = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, False, False, False]])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def attention() -> Attention:
    return randomised(Attention(D, HEADS))


@pytest.fixture
def cross() -> Attention:
    return randomised(Attention(D, HEADS, memory_width=M))


class TestMask:
    def test_padding(self) -> None:
        assert torch.equal(attention_mask(REAL), REAL[:, None])

    def test_causal_by_hand(self) -> None:
        mask = attention_mask(torch.tensor([[True, True, True, False]]), causal=True)
        assert mask.int().tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]]

    def test_prefix_by_hand(self) -> None:
        mask = attention_mask(torch.ones(2, 4, dtype=torch.bool), causal=True, prefix=torch.tensor([2, 0]))
        assert mask[0].int().tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]
        assert mask[1].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1]]

    def test_every_place_of_prefix_masks(self) -> None:
        prefix = torch.tensor([0, 2, 5])
        mask = attention_mask(REAL, causal=True, prefix=prefix)
        for row in range(B):
            for place in range(L):
                for key in range(L):
                    expected = bool(REAL[row, key]) and (key <= place or key < prefix[row])
                    assert mask[row, place, key] == expected


class TestSelfAttention:
    @pytest.mark.parametrize("kind", ["padding", "causal", "prefix", "any"])
    def test_equals_loops(self, attention: Attention, kind: str) -> None:
        masks = {
            "padding": attention_mask(REAL),
            "causal": attention_mask(REAL, causal=True),
            "prefix": attention_mask(REAL, causal=True, prefix=torch.tensor([0, 2, 4])),
            "any": torch.rand(B, L, L, generator=torch.Generator().manual_seed(1)) < 0.5,
        }
        x = normal(B, L, D)
        assert torch.allclose(attention(x, masks[kind]), self_attention(attention, x, masks[kind]), atol=1e-5)

    def test_a_row_that_sees_nothing_is_finite(self, attention: Attention) -> None:
        mask = attention_mask(torch.tensor([[True] * L, [False] * L]))
        x = normal(2, L, D).requires_grad_()
        out = attention(x, mask)
        out.square().sum().backward()
        assert torch.allclose(out[1], attention.out.bias.expand(L, D), atol=1e-6)
        assert x.grad is not None and x.grad.isfinite().all()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in attention.parameters())

    def test_garbage_at_masked_places_changes_nothing(self, attention: Attention) -> None:
        x, mask = normal(B, L, D), attention_mask(REAL)
        dirty = torch.where(REAL[..., None], x, 1e4 * normal(B, L, D, seed=1))
        assert torch.equal(attention(dirty, mask)[REAL], attention(x, mask)[REAL])

    def test_a_causal_token_does_not_see_what_follows(self, attention: Attention) -> None:
        x, mask = normal(1, L, D), attention_mask(torch.ones(1, L, dtype=torch.bool), causal=True)
        changed = x.clone()
        changed[:, 3:] = normal(1, L - 3, D, seed=1)
        before, after = attention(x, mask), attention(changed, mask)
        assert torch.equal(before[:, :3], after[:, :3]) and not torch.allclose(before[:, 3:], after[:, 3:])

    def test_the_first_token_alone(self, attention: Attention) -> None:
        x = normal(B, L, D)
        for mask in (attention_mask(REAL), attention_mask(REAL, causal=True)):
            assert torch.allclose(attention(x, mask, first_only=True), attention(x, mask)[:, :1], atol=1e-6)

    def test_dropout_in_training_alone(self) -> None:
        attention = randomised(Attention(D, HEADS, dropout=0.5))
        x, mask = normal(B, L, D), attention_mask(REAL)
        assert torch.equal(attention(x, mask), attention(x, mask))
        attention.train()
        assert not torch.allclose(attention(x, mask), attention(x, mask))

    def test_width_must_fit_the_heads(self) -> None:
        with pytest.raises(ValueError, match="width 8 is not divisible by 3 heads"):
            Attention(8, 3)


class TestPacking:
    def test_real_tokens_row_after_row(self) -> None:
        x, packing = normal(B, L, D), Packing.of(REAL)
        assert packing is not None
        assert torch.equal(packing.pack(x), torch.cat([x[0], x[1, :3], x[2, :1]]))
        assert torch.equal(packing.unpack(packing.pack(x)), x * REAL[..., None])

    def test_nothing_to_pack(self) -> None:
        assert Packing.of(torch.ones(2, 3, dtype=torch.bool)) is None

    @pytest.mark.parametrize("causal", [False, True])
    def test_equals_padded_attention_with_its_gradients(self, attention: Attention, causal: bool) -> None:
        packing, mask = Packing.of(REAL), attention_mask(REAL, causal=causal)
        assert packing is not None
        padded = normal(B, L, D).requires_grad_()
        packed = packing.pack(padded.detach()).requires_grad_()
        plain, fast = attention(padded, mask)[REAL], attention(packed, mask, packing)
        assert torch.allclose(fast, plain, atol=1e-6)
        (plain * torch.arange(plain.numel()).view_as(plain)).sum().backward()
        (fast * torch.arange(plain.numel()).view_as(plain)).sum().backward()
        assert padded.grad is not None and packed.grad is not None
        assert torch.allclose(packed.grad, padded.grad[REAL], rtol=1e-4, atol=1e-4)
        assert torch.equal(padded.grad[~REAL], torch.zeros(int((~REAL).sum()), D))

    def test_the_first_token_alone(self, attention: Attention) -> None:
        packing, mask, x = Packing.of(REAL), attention_mask(REAL), normal(B, L, D)
        assert packing is not None
        fast = attention(packing.pack(x), mask, packing, first_only=True)
        assert torch.allclose(fast, attention(x, mask)[:, :1], atol=1e-6)


class TestMemory:
    MASK = torch.tensor([[True] * S, [True, True, False, False]])

    def test_each_row_reads_its_own(self, cross: Attention) -> None:
        x, states = normal(2, L, D), normal(2, S, M, seed=1)
        out = cross.read(x, cross.remember(states, self.MASK))
        assert torch.allclose(out, cross_attention(cross, x, states, self.MASK, [0, 1]), atol=1e-5)

    def test_each_row_reads_what_its_index_names(self, cross: Attention) -> None:
        x, states, index = normal(4, L, D), normal(2, S, M, seed=1), [1, 0, 1, 1]
        out = cross.read(x, cross.remember(states, self.MASK), torch.tensor(index))
        assert torch.allclose(out, cross_attention(cross, x, states, self.MASK, index), atol=1e-5)

    @pytest.mark.parametrize("index", [None, [0, 0, 0]])
    @pytest.mark.parametrize("packed", [False, True])
    def test_one_sequence_read_as_one_long_query(self, cross: Attention, index: list[int] | None, packed: bool) -> None:
        """The same as loops, and as the path for several sequences."""
        x, states = normal(B, L, D), normal(2, S, M, seed=1)
        one = cross.remember(states[1:], self.MASK[1:])
        packing = Packing.of(REAL) if packed else None
        query = x if packing is None else packing.pack(x)
        fast = cross.read(query, one, None if index is None else torch.tensor(index), packing)
        real = REAL if packed else torch.ones_like(REAL)
        fast = fast if packed else fast[real]
        assert torch.allclose(fast, cross_attention(cross, x, states, self.MASK, [1, 1, 1])[real], atol=1e-5)
        both = cross.remember(states, self.MASK)
        assert torch.allclose(fast, cross.read(x, both, torch.tensor([1, 1, 1]))[real], atol=1e-5)

    def test_packed_rows_read_several_sequences(self, cross: Attention) -> None:
        x, memory, packing = normal(B, L, D), cross.remember(normal(2, S, M, seed=1), self.MASK), Packing.of(REAL)
        assert packing is not None
        index = torch.tensor([1, 0, 1])
        fast = cross.read(packing.pack(x), memory, index, packing)
        assert torch.allclose(fast, cross.read(x, memory, index)[REAL], atol=1e-6)

    def test_garbage_at_masked_places_changes_nothing(self, cross: Attention) -> None:
        x, states = normal(2, L, D), normal(2, S, M, seed=1)
        dirty = torch.where(self.MASK[..., None], states, torch.tensor(1e4))
        clean = cross.read(x, cross.remember(states, self.MASK))
        assert torch.equal(cross.read(x, cross.remember(dirty, self.MASK)), clean)

    def test_a_memory_of_nothing_is_finite(self, cross: Attention) -> None:
        nothing = torch.zeros(2, S, dtype=torch.bool)
        out = cross.read(normal(2, L, D), cross.remember(normal(2, S, M), nothing))
        assert torch.allclose(out, cross.out.bias.expand(2, L, D), atol=1e-6)

    def test_select(self) -> None:
        memory = KeyValue(normal(3, HEADS, S, 4), normal(3, HEADS, S, 4, seed=1), torch.eye(3, S).bool())
        chosen = memory.select(torch.tensor([2, 2, 0]))
        for part, before in zip(chosen, memory, strict=True):
            assert torch.equal(part, torch.stack([before[2], before[2], before[0]]))
