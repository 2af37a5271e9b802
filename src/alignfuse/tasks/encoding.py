"""Embedding whole sets, batch by batch.

Shapes: B batch, I images, T texts, E embedding width, Q embeddings of one image.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.errors import UserError
from alignfuse.systems.protocols import Embeds
from alignfuse.tasks.progress import Stages
from alignfuse.tasks.token_store import Images, TextStore, TextStoreWriter


class EncodedTexts(NamedTuple):
    """Embeddings and, for re-ranking, token states."""

    embeddings: Float[Tensor, "T E"]
    tokens: TextStore


@contextmanager
def inference(model: object) -> Iterator[None]:
    """No gradients and no dropout; afterwards each part of the model trains or not, as before."""
    training = [part for part in model.modules() if part.training] if isinstance(model, nn.Module) else []
    for part in training:
        part.training = False
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def embed_images(
    model: Embeds, batches: Iterable[Images], *, device: torch.device | str = "cpu"
) -> Iterator[Float[Tensor, "B E"] | Float[Tensor, "B Q E"]]:
    """Embeddings of each batch, float32 on the CPU. The model must be on the device."""
    for images in batches:
        with inference(model):
            embeddings = model.embed_image(model.encode_image(images.to(device))).float().cpu()
        yield embeddings


def embed_texts(
    model: Embeds, batches: Iterable[Text], *, device: torch.device | str = "cpu"
) -> Iterator[Float[Tensor, "B E"]]:
    """Embeddings of each batch, float32 on the CPU. The model must be on the device."""
    for text in batches:
        with inference(model):
            embeddings = model.embed_text(model.encode_text(on_device(text, device))).float().cpu()
        yield embeddings


def embed_image_tokens(
    model: Embeds, batches: Iterable[Tokens], stages: Stages
) -> Float[Tensor, "I E"] | Float[Tensor, "I Q E"]:
    """Embeddings of all encoded images, float32 on the CPU."""
    stages.start("encode images", "images")
    parts = []
    for tokens in batches:
        parts.append(model.embed_image(tokens).float().cpu())
        stages.add(len(parts[-1]))
    if not parts:
        raise UserError("no images to encode")
    return finite(torch.cat(parts), "image")


def encode_texts(
    model: Embeds,
    batches: Iterable[Text],
    stages: Stages,
    *,
    device: torch.device | str = "cpu",
    keep_states: bool,
    scratch: Path | None = None,
) -> EncodedTexts:
    """Embeddings of all texts, float32 on the CPU, and their tokens; each text is encoded once."""
    stages.start("encode texts", "texts")
    parts, writer = [], TextStoreWriter(scratch if keep_states else None)
    for text in batches:
        encoded = model.encode_text(on_device(text, device))
        parts.append(model.embed_text(encoded).float().cpu())
        writer.add(encoded if keep_states else Text(encoded.ids, encoded.mask))
        stages.add(len(parts[-1]))
    if not parts:
        raise UserError("no texts to encode")
    return EncodedTexts(finite(torch.cat(parts), "text"), writer.finish())


def finite(embeddings: Float[Tensor, "N ..."], kind: str) -> Float[Tensor, "N ..."]:
    """The embeddings, if all of them are numbers."""
    bad = ~embeddings.flatten(1).isfinite().all(dim=1)
    if bad.any():
        raise UserError(f"the model gives {kind} {int(bad.int().argmax())} an embedding that is not finite")
    return embeddings


def on_device(text: Text, device: torch.device | str) -> Text:
    """The text on the device."""
    states = None if text.states is None else text.states.to(device)
    return Text(text.ids.to(device), text.mask.to(device), states)
