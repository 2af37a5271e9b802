"""Asking a model about generated scenes: words to guess, and captions to judge.

Shapes: N scenes, H rows, W columns of pixels, B probes or scenes of one batch, M masked words.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeVar

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from alignfuse.api import Pipeline
from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.data.batches import ImageBatches
from alignfuse.errors import UserError
from alignfuse.tasks.encoding import inference, on_device
from alignfuse.world.probes import FoilPair, MaskedWord
from alignfuse.world.render import render_scenes
from alignfuse.world.scenes import Scene

# What the fusion encoder reads beside the text: the scene, nothing (all image tokens masked out), or another scene.
Reading = Literal["image", "text alone", "wrong image"]
READINGS: tuple[Reading, ...] = ("image", "text alone", "wrong image")
AT_ONCE = 128  # probes of one batch

Pixels = UInt8[Tensor, "N 3 H W"]
Probe = TypeVar("Probe", MaskedWord, FoilPair)


class Guess(NamedTuple):
    """What a model puts in place of a masked word."""

    words: list[tuple[str, float]]  # the likeliest with their probabilities, best first
    right: bool  # the first of them makes the caption true


class Verdict(NamedTuple):
    """Whether a caption was called a match, and whether its foil was called none."""

    caption: bool
    foil: bool


def paint(pipe: Pipeline, scenes: Sequence[Scene]) -> Pixels:
    """The scenes at the size that the model reads."""
    images = torch.from_numpy(render_scenes(scenes, max(pipe.preprocessing.image_size))).permute(0, 3, 1, 2)
    return torch.cat(list(ImageBatches(list(images), pipe.preprocessing)))


def guess_words(
    pipe: Pipeline, pixels: Pixels, probes: Sequence[MaskedWord], reading: Reading = "image", *, top: int = 3
) -> list[Guess]:
    """The model's guess at each masked word; a word of several pieces is judged by its first."""
    guesses = []
    for some in _batches(probes):
        text, where = _masked(pipe, some)
        shown = torch.tensor([probe.scene for probe in some])
        with inference(pipe.model):
            image, image_of = _encoded(pipe, pixels, (shown + 1) % len(pixels) if reading == "wrong image" else shown)
            if reading == "text alone":
                image = image._replace(mask=torch.zeros_like(image.mask))
            encoded = pipe.model.encode_text(on_device(text, pipe.device))
            fused = pipe.model.fuse(encoded, pipe.model.remember(image), image_of)
            found = pipe.model.predict(fused, where.to(pipe.device)).float().softmax(dim=1).topk(top, dim=1)
        for probe, ids, chances in zip(some, found.indices.tolist(), found.values.tolist(), strict=True):
            words = [pipe.tokenizer.decode([number]) for number in ids]
            right = ids[0] in _first_pieces(pipe, probe.answers)
            guesses.append(Guess(list(zip(words, chances, strict=True)), right))
    return guesses


def judge_pairs(pipe: Pipeline, pixels: Pixels, pairs: Sequence[FoilPair]) -> list[Verdict]:
    """Captions and foils, each on its own: the larger of the two match logits decides."""
    verdicts = []
    for some in _batches(pairs):
        text = pipe.tokenizer([text for pair in some for text in (pair.caption, pair.foil)]).text
        with inference(pipe.model):
            image, image_of = _encoded(pipe, pixels, torch.tensor([pair.scene for pair in some]))
            encoded = pipe.model.encode_text(on_device(text, pipe.device))
            memory, both = pipe.model.remember(image), image_of.repeat_interleave(2)
            logits = pipe.model.match(pipe.model.fuse(encoded, memory, both, first_only=True))
        verdicts += [Verdict(caption == 1, foil == 0) for caption, foil in logits.argmax(dim=1).view(-1, 2).tolist()]
    return verdicts


def _batches(probes: Sequence[Probe]) -> Iterator[Sequence[Probe]]:
    return (probes[start : start + AT_ONCE] for start in range(0, len(probes), AT_ONCE))


def _encoded(pipe: Pipeline, pixels: Pixels, scenes: Int[Tensor, " B"]) -> tuple[Tokens, Int[Tensor, " B"]]:
    """Each of the scenes encoded once, and which of the images each row reads."""
    distinct, image_of = torch.unique(scenes, return_inverse=True)
    return pipe.model.encode_image(pixels[distinct].to(pipe.device)), image_of.to(pipe.device)


def _masked(pipe: Pipeline, probes: Sequence[MaskedWord]) -> tuple[Text, Int[Tensor, " M"]]:
    """The texts with their words masked, and the flat places of the words' first pieces."""
    encoded = pipe.tokenizer([probe.text for probe in probes])
    hidden = encoded.words == torch.tensor([[probe.position] for probe in probes])
    if not hidden.any(dim=1).all():
        raise UserError(f"captions of generated scenes are longer than {pipe.tokenizer.config.max_tokens} tokens")
    rows, length = torch.arange(len(probes)), encoded.words.shape[1]
    ids = encoded.text.ids.masked_fill(hidden, pipe.tokenizer.mask_id)
    return Text(ids, encoded.text.mask), rows * length + hidden.int().argmax(dim=1)


def _first_pieces(pipe: Pipeline, words: frozenset[str]) -> set[int]:
    """Ids of the first pieces of words that the vocabulary knows."""
    first = pipe.tokenizer(sorted(words)).text.ids[:, 1]  # behind [CLS]
    return set(first.tolist()) - {pipe.tokenizer.unk_id}
