"""Scoring (image, text) pairs with the fusion encoder, image by image.

The image side is remembered once and read by all its texts; each distinct pair is scored once. Memory is bounded by one
batch of images and `texts_at_once` texts. Serves the evaluation of retrieval and mining over a whole set.

Shapes: P pairs, B texts read together.
"""

from collections.abc import Iterable
from itertools import pairwise

import torch
from jaxtyping import Float, Float32, Int, Int64
from torch import Tensor

from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.errors import UserError
from alignfuse.systems.protocols import Fuses
from alignfuse.tasks.progress import Stages
from alignfuse.tasks.token_store import TextStore


def match_logits(
    model: Fuses, text: Text, memory: object, image_of: Int[Tensor, " B"] | None = None
) -> Float32[Tensor, " B"]:
    """The logit of "match" alone, which is ALBEF's re-ranking score, on the CPU."""
    logits = model.match(model.fuse(text, memory, image_of, first_only=True))[:, 1].float().cpu()
    if not logits.isfinite().all():
        raise UserError("the model gives match logits that are not finite")
    return logits


def match_pairs(
    model: Fuses,
    images: Iterable[Tokens],
    texts: TextStore,
    image_of_pair: Int64[Tensor, " P"],
    text_of_pair: Int64[Tensor, " P"],
    stages: Stages,
    *,
    texts_at_once: int = 256,
) -> Float32[Tensor, " P"]:
    """Match logits of the pairs, which must be ordered by image."""
    stages.start("re-rank", "pairs", len(image_of_pair))
    scores = torch.full((len(image_of_pair),), float("nan"))
    first_image = 0
    for batch in images:
        last_image = first_image + len(batch.states)
        bounds = torch.searchsorted(image_of_pair, torch.arange(first_image, last_image + 1)).tolist()
        for row, (start, end) in enumerate(pairwise(bounds)):
            if start < end:
                mine = slice(start, end)
                scores[mine] = _match_one(model, _single(batch, row), texts, text_of_pair[mine], texts_at_once)
                stages.add(end - start)
        first_image = last_image
    if len(image_of_pair) and int(image_of_pair[-1]) >= first_image:
        raise ValueError(f"{first_image} images were given, but a pair asks for image {int(image_of_pair[-1])}")
    return scores


def _match_one(
    model: Fuses, image: Tokens, texts: TextStore, rows: Int64[Tensor, " B"], texts_at_once: int
) -> Float[Tensor, " B"]:
    """Match logits of one image with the texts `rows`, those of similar length together."""
    memory = model.remember(image)
    scores = torch.empty(len(rows))
    for chosen in torch.split(texts.lengths[rows].argsort(), texts_at_once):
        text = texts.take(rows[chosen], image.states.device)
        scores[chosen] = match_logits(model, text, memory, torch.zeros_like(text.ids[:, 0]))
    return scores


def _single(batch: Tokens, row: int) -> Tokens:
    """The tokens of one image of a batch."""
    return Tokens(batch.states[row : row + 1], batch.mask[row : row + 1], batch.grid, batch.prefix)
