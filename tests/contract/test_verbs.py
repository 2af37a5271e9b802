"""What every model owes those who use its verbs: retrieval, matching, masked words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, pad

from alignfuse.blocks.tokens import Text
from alignfuse.systems import SYSTEMS
from alignfuse.systems.protocols import Embeds, Encodes, Fuses, Predicts
from tests.contract.setups import IMAGE, TEXT, TINY, WORDS, build, model_of, pairs


def with_verbs(protocol: type) -> pytest.MarkDecorator:
    """The systems whose model claims the protocol or one that builds on it."""
    names = [name for name in SYSTEMS if any(issubclass(verbs, protocol) for verbs in TINY[name].verbs)]
    return pytest.mark.parametrize("name", names)


@pytest.fixture(autouse=True)
def without_gradient() -> Iterator[None]:
    with torch.no_grad():
        yield


def inputs(count: int, seed: int = 0) -> tuple[Tensor, Text]:
    batch = pairs(count, seed=seed)
    assert batch.images is not None and batch.text is not None
    return batch.images, batch.text


def row_of(text: Text, row: int) -> Text:
    """One text as a batch of its own, without its padding."""
    length = int(text.mask[row].sum())
    states = None if text.states is None else text.states[row : row + 1, :length]
    return Text(text.ids[row : row + 1, :length], text.mask[row : row + 1, :length], states)


def same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, atol=1e-5)


@with_verbs(Encodes)
class TestEncodes:
    def test_a_batch_is_its_samples(self, name: str) -> None:
        model, (images, text) = model_of(name), inputs(4)
        tokens, encoded = model.encode_image(images), model.encode_text(text)
        for row in range(4):
            assert same(model.encode_image(images[row : row + 1]).states[0], tokens.states[row])
            alone = model.encode_text(row_of(text, row))
            if alone.states is not None:
                assert same(alone.states[0], encoded.states[row, : alone.states.shape[1]])

    def test_the_text_keeps_its_ids_and_mask(self, name: str) -> None:
        _, text = inputs(4)
        encoded = model_of(name).encode_text(text)
        assert torch.equal(encoded.ids, text.ids) and torch.equal(encoded.mask, text.mask)

    def test_inference_is_deterministic(self, name: str) -> None:
        """Also in a model whose config has dropout."""
        config = replace(TINY[name].config, text=replace(TEXT, dropout=0.5), image=replace(IMAGE, dropout=0.5))
        model, (images, text) = build(name, config=config).model.eval(), inputs(2)
        assert torch.equal(model.encode_image(images).states, model.encode_image(images).states)
        first, second = model.encode_text(text).states, model.encode_text(text).states
        assert first is None or torch.equal(first, second)

    def test_other_image_sizes(self, name: str) -> None:
        tokens = model_of(name).encode_image(torch.randint(0, 256, (2, 3, 32, 16), dtype=torch.uint8))
        assert tokens.grid == (4, 2) and tokens.states.isfinite().all()
        assert tokens.states.shape[1] == tokens.mask.shape[1] == tokens.prefix + 8


@with_verbs(Embeds)
class TestEmbeds:
    def embed(self, model: Any, images: Tensor, text: Text) -> tuple[Tensor, Tensor]:
        return model.embed_image(model.encode_image(images)), model.embed_text(model.encode_text(text))

    def test_unit_vectors_of_one_width(self, name: str) -> None:
        images, texts = self.embed(model_of(name), *inputs(5))
        assert images.shape[-1] == texts.shape[-1]
        for vectors in (images, texts):
            assert vectors.dtype == torch.float32
            assert (vectors.norm(dim=-1) - 1).abs().max() < 1e-5

    def test_one_modality_at_a_time(self, name: str) -> None:
        model, (images, text) = model_of(name), inputs(3)
        both = self.embed(model, images, text)
        assert torch.equal(model.embed_image(model.encode_image(images)), both[0])
        assert torch.equal(model.embed_text(model.encode_text(text)), both[1])

    def test_the_batch_size_changes_nothing_that_matters(self, name: str) -> None:
        """float32 on a CPU: cosine of at least 0.99999 between batches of 1 and of 16."""
        model, (images, text) = model_of(name), inputs(16)
        whole = self.embed(model, images, text)
        for row in range(16):
            alone = self.embed(model, images[row : row + 1], row_of(text, row))
            for one, other in zip(whole, alone, strict=True):
                assert cosine_similarity(one[row], other[0], dim=-1).min() >= 0.99999

    def test_similarity_is_a_cosine(self, name: str) -> None:
        model = model_of(name)
        images, texts = self.embed(model, *inputs(5))
        scores = model.similarity(images[:3], texts)
        assert scores.shape == (3, 5)
        assert scores.abs().max() <= 1 + 1e-5
        for i in range(3):
            vectors = images[i].reshape(-1, images.shape[-1])  # one image may have several
            for t in range(5):
                assert scores[i, t].item() == pytest.approx(float((vectors @ texts[t]).max()), abs=1e-5)

    def test_different_inputs_are_told_apart(self, name: str) -> None:
        images, texts = self.embed(model_of(name), *inputs(4))
        for vectors in (images, texts):
            flat = vectors.flatten(1)
            assert torch.cdist(flat, flat)[~torch.eye(4, dtype=torch.bool)].min() > 1e-4


@with_verbs(Fuses)
class TestFuses:
    def fused(self, name: str) -> tuple[Any, Tensor, Text, Any]:
        model, (images, text) = model_of(name), inputs(4)
        encoded = model.encode_text(text)
        return model, images, encoded, model.remember(model.encode_image(images))

    def test_a_batch_is_its_pairs(self, name: str) -> None:
        model, images, text, memory = self.fused(name)
        whole = model.fuse(text, memory)
        for row in range(4):
            one = row_of(text, row)
            alone = model.fuse(one, model.remember(model.encode_image(images[row : row + 1])))
            assert same(alone.states[0], whole.states[row, : one.ids.shape[1]])
            assert same(model.match(alone)[0], model.match(whole)[row])

    def test_texts_read_the_images_that_they_name(self, name: str) -> None:
        model, images, text, memory = self.fused(name)
        named = [2, 0, 2, 1]
        whole = model.fuse(text, memory, torch.tensor(named))
        for row, source in enumerate(named):
            one = row_of(text, row)
            alone = model.fuse(one, model.remember(model.encode_image(images[source : source + 1])))
            assert same(alone.states[0], whole.states[row, : one.ids.shape[1]])

    def test_the_image_matters(self, name: str) -> None:
        model, _, text, memory = self.fused(name)
        own, other = (
            model.match(model.fuse(text, memory)),
            model.match(model.fuse(text, memory, torch.arange(4).flip(0))),
        )
        assert (own - other).abs().max() > 1e-5

    def test_what_stands_at_padding_changes_nothing(self, name: str) -> None:
        model, _, text, memory = self.fused(name)
        clean = model.fuse(text, memory)
        assert torch.equal(clean.states[~text.mask], torch.zeros_like(clean.states[~text.mask]))
        other = torch.randint(0, WORDS, text.ids.shape, generator=torch.Generator().manual_seed(9))
        dirty = Text(text.ids.where(text.mask, other), text.mask, text.states)
        wider = Text(
            pad(text.ids, (0, 3), value=7),
            pad(text.mask, (0, 3)),
            text.states if text.states is None else pad(text.states, (0, 0, 0, 3), value=1e4),
        )
        if text.states is not None:
            dirty = dirty._replace(states=text.states.masked_fill(~text.mask[..., None], 1e4))
        for changed in (dirty, wider):
            assert same(model.fuse(changed, memory).states[:, : text.ids.shape[1]], clean.states)

    def test_matching_needs_no_more_than_the_first_state(self, name: str) -> None:
        model, _, text, memory = self.fused(name)
        for image_of in (None, torch.tensor([3, 3, 0, 1])):
            first = model.fuse(text, memory, image_of, first_only=True)
            assert same(model.match(first), model.match(model.fuse(text, memory, image_of)))


@with_verbs(Predicts)
class TestPredicts:
    def test_words_at_the_places_asked_for(self, name: str) -> None:
        model, (images, text) = model_of(name), inputs(3)
        fused = model.fuse(model.encode_text(text), model.remember(model.encode_image(images)))
        everywhere = model.predict(fused, torch.arange(text.ids.numel()))
        assert everywhere.shape == (text.ids.numel(), WORDS)
        where = torch.tensor([2, 10, 1])
        assert same(model.predict(fused, where), everywhere[where])
        assert model.predict(fused, where[:0]).shape == (0, WORDS)


@pytest.mark.parametrize("name", SYSTEMS)
def test_parameters_of_the_published_size(name: str) -> None:
    entry = SYSTEMS[name]
    with torch.device("meta"):
        model = entry.model(entry.config())
    assert sum(p.numel() for p in model.parameters() if p.requires_grad) == TINY[name].base
