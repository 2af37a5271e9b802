"""Text encoder, fusion encoder and heads."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import gelu

from alignfuse.blocks.heads import MaskedLanguageHead, Projection
from alignfuse.blocks.text import FusionEncoder, TextConfig, TextEncoder
from alignfuse.blocks.tokens import Text, Tokens
from tests.blocks.restated import layer_norm, randomised

CONFIG = TextConfig(
    vocab_size=20, width=8, layers=2, fusion_layers=2, heads=2, hidden=16, positions=6, eps=1e-3, dropout=0.5
)
IMAGE_WIDTH = 6
MASK = torch.tensor([[True] * 5, [True, True, True, False, False], [True, False, False, False, False]])


def text(seed: int = 0) -> Text:
    ids = torch.randint(0, 20, (3, 5), generator=torch.Generator().manual_seed(seed))
    return Text(ids, MASK)


def image(count: int = 3) -> Tokens:
    states = torch.randn(count, 4, IMAGE_WIDTH, generator=torch.Generator().manual_seed(count))
    return Tokens(states, torch.arange(4)[None] < torch.tensor([[4], [2], [3]])[:count])


@pytest.fixture
def encoder() -> TextEncoder:
    return randomised(TextEncoder(CONFIG))


@pytest.fixture
def fusion() -> FusionEncoder:
    return randomised(FusionEncoder(CONFIG, IMAGE_WIDTH))


def states_of(text: Text) -> Tensor:
    assert text.states is not None
    return text.states


class TestTextEncoder:
    def test_embeddings_by_hand(self, encoder: TextEncoder) -> None:
        table = encoder.embeddings
        ids = torch.tensor([[3, 3, 7]])
        expected = torch.stack([table.word.weight[i] + table.position.weight[p] for p, i in enumerate([3, 3, 7])])
        expected = layer_norm(expected + table.token_type.weight[0], table.norm)
        assert torch.allclose(table(ids)[0], expected, atol=1e-5)

    def test_blocks_follow_each_other(self, encoder: TextEncoder) -> None:
        x = encoder.embeddings(text().ids)
        for block in encoder.blocks:
            x = block(x, MASK[:, None])
        assert torch.allclose(states_of(encoder(text())), x * MASK[..., None], atol=1e-5)

    def test_padded_places_are_zero_and_change_nothing(self, encoder: TextEncoder) -> None:
        """Neither the ids at padding nor more padding."""
        clean = states_of(encoder(text()))
        assert torch.equal(clean[~MASK], torch.zeros(int((~MASK).sum()), 8))
        dirty = Text(torch.where(MASK, text().ids, text(seed=9).ids), MASK)
        assert torch.equal(states_of(encoder(dirty)), clean)
        longer = Text(torch.nn.functional.pad(text().ids, (0, 1), value=4), torch.nn.functional.pad(MASK, (0, 1)))
        assert torch.allclose(states_of(encoder(longer))[:, :5], clean, atol=1e-6)

    def test_a_batch_is_its_texts(self, encoder: TextEncoder) -> None:
        whole = states_of(encoder(text()))
        for row, length in enumerate(MASK.sum(1).tolist()):
            alone = encoder(Text(text().ids[row : row + 1, :length], MASK[row : row + 1, :length]))
            assert torch.allclose(states_of(alone)[0], whole[row, :length], atol=1e-5)

    def test_a_text_longer_than_the_table_is_an_error(self, encoder: TextEncoder) -> None:
        ids = torch.zeros(1, 7, dtype=torch.long)
        with pytest.raises(ValueError, match="a text of 7 tokens, but the position table has 6"):
            encoder(Text(ids, torch.ones(1, 7, dtype=torch.bool)))
        assert states_of(encoder(Text(ids[:, :6], torch.ones(1, 6, dtype=torch.bool)))).shape == (1, 6, 8)

    def test_dropout_in_training_alone(self, encoder: TextEncoder) -> None:
        assert torch.equal(states_of(encoder(text())), states_of(encoder(text())))
        encoder.train()
        assert not torch.allclose(states_of(encoder(text())), states_of(encoder(text())))


class TestFusionEncoder:
    def test_blocks_follow_each_other(self, encoder: TextEncoder, fusion: FusionEncoder) -> None:
        encoded, memory = encoder(text()), fusion.remember(image())
        x = states_of(encoded)
        for block, layer in zip(fusion.blocks, memory.layers, strict=True):
            x = block(x, MASK[:, None], layer)
        fused = fusion(encoded, memory)
        assert torch.allclose(fused.states, x * MASK[..., None], atol=1e-5)
        assert torch.equal(fused.mask, MASK)

    def test_each_text_reads_the_image_that_it_names(self, encoder: TextEncoder, fusion: FusionEncoder) -> None:
        encoded, pictures = encoder(text()), image()
        fused = fusion(encoded, fusion.remember(pictures), torch.tensor([2, 0, 2]))
        for row, source in enumerate([2, 0, 2]):
            one = Text(encoded.ids[[row]], encoded.mask[[row]], states_of(encoded)[[row]])
            memory = fusion.remember(Tokens(pictures.states[[source]], pictures.mask[[source]]))
            assert torch.allclose(fusion(one, memory).states[0], fused.states[row], atol=1e-5)

    def test_a_selected_memory_is_an_index(self, encoder: TextEncoder, fusion: FusionEncoder) -> None:
        encoded, memory, index = encoder(text()), fusion.remember(image()), torch.tensor([2, 0, 2])
        assert torch.equal(fusion(encoded, memory.select(index)).states, fusion(encoded, memory, index).states)

    def test_one_image_is_read_by_all(self, encoder: TextEncoder, fusion: FusionEncoder) -> None:
        encoded, pictures = encoder(text()), image()
        one = fusion.remember(Tokens(pictures.states[:1], pictures.mask[:1]))
        several = fusion(encoded, fusion.remember(pictures), torch.zeros(3, dtype=torch.long))
        assert torch.allclose(fusion(encoded, one).states, several.states, atol=1e-5)

    @pytest.mark.parametrize("index", [None, [1, 1, 0]])
    def test_the_first_token_alone(self, encoder: TextEncoder, fusion: FusionEncoder, index: list[int] | None) -> None:
        encoded, memory = encoder(text()), fusion.remember(image())
        image_of = None if index is None else torch.tensor(index)
        first = fusion(encoded, memory, image_of, first_only=True)
        assert first.states.shape == (3, 1, 8) and torch.equal(first.mask, MASK[:, :1])
        assert torch.allclose(first.states, fusion(encoded, memory, image_of).states[:, :1], atol=1e-5)

    def test_garbage_at_masked_places_changes_nothing(self, encoder: TextEncoder, fusion: FusionEncoder) -> None:
        encoded, pictures = encoder(text()), image()
        clean = fusion(encoded, fusion.remember(pictures))
        dirty_text = Text(encoded.ids, MASK, states_of(encoded).masked_fill(~MASK[..., None], 1e4))
        dirty_image = Tokens(pictures.states.masked_fill(~pictures.mask[..., None], 1e4), pictures.mask)
        assert torch.equal(fusion(dirty_text, fusion.remember(dirty_image)).states, clean.states)

    def test_a_text_must_be_encoded(self, fusion: FusionEncoder) -> None:
        with pytest.raises(ValueError, match="call encode_text first"):
            fusion(text(), fusion.remember(image()))

    def test_every_text_must_name_an_image(self, encoder: TextEncoder, fusion: FusionEncoder) -> None:
        with pytest.raises(ValueError, match="3 texts but image_of names 2 images"):
            fusion(encoder(text()), fusion.remember(image()), torch.tensor([0, 1]))

    def test_no_fusion_layer_leaves_the_text_as_it_is(self, encoder: TextEncoder) -> None:
        fusion = FusionEncoder(replace(CONFIG, fusion_layers=0), IMAGE_WIDTH)
        encoded = encoder(text())
        assert torch.equal(fusion(encoded, fusion.remember(image())).states, states_of(encoded))


class TestHeads:
    def test_a_projection_gives_unit_vectors_in_float32(self) -> None:
        head = Projection(8, 5)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            vectors = head(torch.randn(4, 8))
        assert vectors.dtype == torch.float32
        assert torch.allclose(vectors.norm(dim=1), torch.ones(4), atol=1e-5)
        states = torch.randn(4, 8)
        direction = states @ head.linear.weight.T + head.linear.bias
        assert torch.allclose(head(states), direction / direction.norm(dim=1, keepdim=True), atol=1e-6)

    def test_a_projection_to_nothing_is_finite(self) -> None:
        head = Projection(8, 5)
        torch.nn.init.zeros_(head.linear.weight)
        torch.nn.init.zeros_(head.linear.bias)
        vectors = head(torch.randn(2, 8))
        vectors.sum().backward()
        assert torch.equal(vectors, torch.zeros(2, 5))
        assert head.linear.weight.grad is not None and head.linear.weight.grad.isfinite().all()

    def test_words_by_hand(self) -> None:
        """LN(GELU(dense x)) times the word table, plus a bias per word; the table learns through it."""
        head = randomised(MaskedLanguageHead(8, 20, eps=1e-3))
        states, words = torch.randn(3, 8), torch.randn(20, 8, requires_grad=True)
        inner = layer_norm(gelu(states @ head.dense.weight.T + head.dense.bias), head.norm)
        logits = head(states, words)
        assert torch.allclose(logits, inner @ words.T + head.bias, atol=1e-5)
        logits.sum().backward()
        assert words.grad is not None and torch.allclose(words.grad, inner.sum(0).expand(20, 8), atol=1e-4)
