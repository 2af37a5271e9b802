"""Re-ranking the hits of one query with the fusion encoder."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.search.index import Hit
from alignfuse.systems.protocols import Fuses
from alignfuse.tasks.encoding import inference, on_device
from alignfuse.tasks.ranking import Score, require_score
from alignfuse.tasks.reranking import match_logits
from alignfuse.tasks.token_store import Images


def rerank_images(
    model: Fuses,
    text: Text,
    images: Iterable[Images],
    hits: Sequence[Hit],
    *,
    score: Score = "itm",
    itc_weight: float = 1.0,
    device: torch.device | str = "cpu",
) -> list[Hit]:
    """The hits of one text query, best match first. `images` are those of the hits, in their order, in batches."""
    if len(text.ids) != 1:
        raise ValueError(f"one query at a time, not {len(text.ids)}")
    logits: list[float] = []
    with inference(model):
        query = model.encode_text(on_device(text, device))
        for batch in images:
            memory = model.remember(model.encode_image(batch.to(device)))
            logits += match_logits(model, _repeated(query, len(batch)), memory).tolist()
    return _ordered(hits, logits, score, itc_weight)


def rerank_texts(
    model: Fuses,
    image: Images,
    texts: Iterable[Text],
    hits: Sequence[Hit],
    *,
    score: Score = "itm",
    itc_weight: float = 1.0,
    device: torch.device | str = "cpu",
) -> list[Hit]:
    """The hits of one image query, best match first. `texts` are those of the hits, in their order, in batches."""
    if len(image) != 1:
        raise ValueError(f"one query at a time, not {len(image)}")
    logits: list[float] = []
    with inference(model):
        memory = model.remember(model.encode_image(image.to(device)))
        for batch in texts:
            text = model.encode_text(on_device(batch, device))
            logits += match_logits(model, text, memory, torch.zeros_like(text.ids[:, 0])).tolist()
    return _ordered(hits, logits, score, itc_weight)


def _repeated(text: Text, count: int) -> Text:
    """One text, `count` times."""

    def repeat(part: Tensor) -> Tensor:
        return part.expand(count, *part.shape[1:])

    return Text(repeat(text.ids), repeat(text.mask), None if text.states is None else repeat(text.states))


def _ordered(hits: Sequence[Hit], logits: Sequence[float], score: Score, itc_weight: float) -> list[Hit]:
    """The hits with their match logits, by the chosen score; equals keep their order."""
    require_score(score)
    if len(hits) != len(logits):
        raise ValueError(f"{len(hits)} hits, but {len(logits)} inputs to re-rank them with")
    scored = [replace(hit, itm=logit) for hit, logit in zip(hits, logits, strict=True)]
    key = {
        "itc": lambda hit: hit.itc,
        "itm": lambda hit: hit.itm,
        "itc+itm": lambda hit: itc_weight * hit.itc + hit.itm,
    }[score]
    return sorted(scored, key=key, reverse=True)
