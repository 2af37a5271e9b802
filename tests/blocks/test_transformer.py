"""The block against its formulas written out."""

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.attention import Packing, attention_mask
from alignfuse.blocks.transformer import Block, Norm, QuickGELU, initialise
from tests.blocks.restated import cross_attention, layer_norm, perceptron, randomised, self_attention

B, L, S, D, M, HEADS = 3, 5, 4, 8, 6, 2
REAL = torch.tensor([[True] * 5, [True, True, True, False, False], [True, True, False, False, False]])
IMAGE = torch.tensor([[True] * S, [True, True, False, False]])
INDEX = [1, 0, 1]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def block(norm: Norm, *, memory: bool = False) -> Block:
    width = M if memory else None
    return randomised(Block(D, HEADS, hidden=12, norm=norm, eps=1e-3, memory_width=width))


def restated(layer: Block, x: Tensor, mask: Tensor, states: Tensor | None = None) -> Tensor:
    """Pre-norm x + f(LN(x)), post-norm LN(x + f(x)), for attention, cross-attention and perceptron in this order."""
    steps = [(lambda y: self_attention(layer.attention, y, mask), layer.attention_norm)]
    if states is not None:
        steps.append((lambda y: cross_attention(layer.cross, y, states, IMAGE, INDEX), layer.cross_norm))
    steps.append((lambda y: perceptron(layer, y), layer.feed_forward_norm))
    for function, norm in steps:
        x = x + function(layer_norm(x, norm)) if layer.pre else layer_norm(x + function(x), norm)
    return x


@pytest.mark.parametrize("norm", ["pre", "post"])
class TestBlock:
    def test_equals_its_formulas(self, norm: Norm) -> None:
        layer, x, mask = block(norm), normal(B, L, D), attention_mask(REAL)
        assert torch.allclose(layer(x, mask), restated(layer, x, mask), atol=1e-5)

    def test_causal(self, norm: Norm) -> None:
        layer, x, mask = block(norm), normal(B, L, D), attention_mask(REAL, causal=True)
        assert torch.allclose(layer(x, mask), restated(layer, x, mask), atol=1e-5)

    def test_with_cross_attention(self, norm: Norm) -> None:
        layer, x, states, mask = block(norm, memory=True), normal(B, L, D), normal(2, S, M), attention_mask(REAL)
        memory = layer.cross.remember(states, IMAGE)
        out = layer(x, mask, memory, torch.tensor(INDEX))
        assert torch.allclose(out, restated(layer, x, mask, states), atol=1e-5)

    def test_cross_attention_is_skipped_without_a_memory(self, norm: Norm) -> None:
        layer, x, mask = block(norm, memory=True), normal(B, L, D), attention_mask(REAL)
        assert torch.allclose(layer(x, mask), restated(layer, x, mask), atol=1e-5)

    def test_the_public_steps_make_the_block(self, norm: Norm) -> None:
        layer, x, mask = block(norm, memory=True), normal(B, L, D), attention_mask(REAL)
        memory = layer.cross.remember(normal(2, S, M), IMAGE)
        index = torch.tensor(INDEX)
        steps = layer.feed_forward(layer.cross_attend(layer.self_attend(x, mask), memory, index))
        assert torch.equal(steps, layer(x, mask, memory, index))

    @pytest.mark.parametrize("memories", [1, 2])
    def test_packed_tokens_give_the_same(self, norm: Norm, memories: int) -> None:
        layer, x, mask, packing = block(norm, memory=True), normal(B, L, D), attention_mask(REAL), Packing.of(REAL)
        assert packing is not None
        memory = layer.cross.remember(normal(memories, S, M), IMAGE[:memories])
        index = torch.tensor(INDEX).clamp(max=memories - 1)
        plain = layer(x, mask, memory, index)
        assert torch.allclose(layer(packing.pack(x), mask, memory, index, packing), plain[REAL], atol=1e-5)
        first = layer(packing.pack(x), mask, memory, index, packing, first_only=True)
        assert torch.allclose(first, plain[:, :1], atol=1e-5)
        assert torch.allclose(layer(x, mask, memory, index, first_only=True), plain[:, :1], atol=1e-5)

    def test_garbage_at_masked_places_changes_nothing(self, norm: Norm) -> None:
        layer, x, mask = block(norm), normal(B, L, D), attention_mask(REAL)
        dirty = torch.where(REAL[..., None], x, torch.tensor(1e4))
        assert torch.equal(layer(dirty, mask)[REAL], layer(x, mask)[REAL])


def test_quick_gelu_by_hand() -> None:
    """x / (1 + e^(-1.702 x))."""
    expected = torch.tensor([0.0, 0.845796, -0.154204])
    assert torch.allclose(QuickGELU()(torch.tensor([0.0, 1.0, -1.0])), expected, atol=1e-6)


def test_the_activation_is_chosen_by_name() -> None:
    layer = Block(D, HEADS, hidden=12, norm="pre", eps=1e-6, activation="quick_gelu")
    assert isinstance(layer.activation, QuickGELU)


def test_initial_weights() -> None:
    torch.manual_seed(0)
    layer = Block(64, 4, hidden=256, norm="pre", eps=1e-6)
    initialise(layer, std=0.02)
    for name, parameter in layer.named_parameters():
        if name.endswith("bias"):
            assert (parameter == 0).all(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.05), name
            assert abs(parameter.mean().item()) < 1e-3, name
