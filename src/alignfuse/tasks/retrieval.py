"""Image-text retrieval: rank everything by ITC, then re-rank each query's shortlist by ITM (ALBEF section 4.2).

The score matrix never exists as a whole: ITC runs in chunks of queries, ITM over the distinct pairs of both directions'
shortlists. The order that comes out is described in `tasks.ranking`.

Shapes: B batch, I images, T texts, E embedding width, Q embeddings of one image or queries, C candidates.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.errors import UserError
from alignfuse.metrics.ordering import best, order_keys, ranks, unpack
from alignfuse.systems.protocols import Embeds, Fuses
from alignfuse.tasks.encoding import embed_image_tokens, encode_texts, inference
from alignfuse.tasks.progress import Report, Stages
from alignfuse.tasks.ranking import Direction, Ranking, Score, require_score
from alignfuse.tasks.reranking import match_pairs
from alignfuse.tasks.retrieval_report import RetrievalReport, report
from alignfuse.tasks.token_store import Images, ImageTokens, TextStore


@dataclass(frozen=True, kw_only=True)
class RetrievalConfig:
    """How to rank, and within which memory."""

    score: Score = "itm"
    itc_weight: float | None = None  # of the cosine in itc+itm; None: 1 as in BLIP (a pipeline takes 1 / temperature)
    k: int = 128  # shortlisted candidates per query; cut to what there is
    scores_at_once: int = 2**22  # ITC scores in memory
    texts_at_once: int = 256  # texts fused with one image at a time
    keep_bytes: int = 2**30  # image tokens, and text states on the device; images beyond it are encoded twice
    scratch: Path | None = None  # folder for a file with the states of the texts; without it they stay in memory

    def __post_init__(self) -> None:
        require_score(self.score)
        if self.k < 1:
            raise UserError(f"k is {self.k}: a shortlist holds at least one candidate")


def evaluate(
    model: Embeds,
    images: Iterable[Images],
    texts: Iterable[Text],
    image_of: Int[Tensor, " T"],
    *,
    checkpoint: str,
    split: str,
    config: RetrievalConfig | None = None,
    device: torch.device | str = "cpu",
    progress: Report | None = None,
) -> RetrievalReport:
    """`rank`, and its recalls. `checkpoint` and `split` are only named in the report."""
    ranking = rank(model, images, texts, image_of, config=config, device=device, progress=progress)
    return report(ranking, checkpoint=checkpoint, split=split)


def rank(
    model: Embeds,
    images: Iterable[Images],
    texts: Iterable[Text],
    image_of: Int[Tensor, " T"],
    *,
    config: RetrievalConfig | None = None,
    device: torch.device | str = "cpu",
    progress: Report | None = None,
) -> Ranking:
    """Rank all texts for each image and all images for each text.

    `images` and `texts` are batches of any sizes; `image_of` holds the image of each text, -1 = none. Images are read
    twice where their tokens do not fit `config.keep_bytes`: give a list or a data loader, no generator. The model must
    be on the device; it is in evaluation mode meanwhile. Under `torch.autocast` the model runs in lower precision, the
    cosines do not.
    """
    config, stages = config or RetrievalConfig(), Stages(progress)
    rerank = config.score != "itc"
    if rerank and not isinstance(model, Fuses):
        raise UserError(f"{type(model).__name__} has no fusion encoder to re-rank with: use the score itc")
    with inference(model):
        tokens = ImageTokens(model, images, device=device, budget=config.keep_bytes if rerank else 0)
        image_embeddings = embed_image_tokens(model, tokens, stages).to(device)
        encoded = encode_texts(model, texts, stages, device=device, keep_states=rerank, scratch=config.scratch)
        _check_owners(image_of, len(image_embeddings), len(encoded.embeddings))
        both = _rank_by_itc(model, image_embeddings, encoded.embeddings.to(device), image_of, config, stages)
        if rerank:
            assert isinstance(model, Fuses)
            store = encoded.tokens.moved(device, budget=config.keep_bytes)
            both = _rerank(model, tokens, store, both, config, stages)
    assert tokens.resolution is not None
    return Ranking(
        image_to_text=both[0],
        text_to_image=both[1],
        score=config.score,
        pairs_fused=stages.done.get("re-rank", 0),
        resolution=tokens.resolution,
        seconds=stages.seconds,
    )


def _check_owners(image_of: Int[Tensor, " T"], images: int, texts: int) -> None:
    if len(image_of) != texts:
        raise ValueError(f"{texts} texts, but image_of names the images of {len(image_of)}")
    if int(image_of.max()) >= images or int(image_of.min()) < -1:
        raise ValueError(
            f"image_of goes from {int(image_of.min())} to {int(image_of.max())}, but there are {images} images"
        )


def _rank_by_itc(
    model: Embeds,
    images: Float[Tensor, "I E"] | Float[Tensor, "I Q E"],
    texts: Float[Tensor, "T E"],
    image_of: Int[Tensor, " T"],
    config: RetrievalConfig,
    stages: Stages,
) -> tuple[Direction, Direction]:
    """Shortlists and ranks of both directions."""
    stages.start("rank by ITC", "queries", len(images) + len(texts))
    embeddings_per_image = images[0].numel() // texts.shape[1]
    limit = config.scores_at_once // embeddings_per_image
    every_image = torch.arange(len(images))
    image_to_text = _rank_queries(
        lambda some: model.similarity(some, texts), images, every_image, image_of, limit, config.k, stages
    )
    text_to_image = _rank_queries(
        lambda some: model.similarity(images, some).T, texts, image_of, every_image, limit, config.k, stages
    )
    weight = 1.0 if config.itc_weight is None else config.itc_weight
    return replace(image_to_text, itc_weight=weight), replace(text_to_image, itc_weight=weight)


def _rank_queries(
    similarity: Callable[[Tensor], Float[Tensor, "Q C"]],
    queries: Tensor,
    owner: Int[Tensor, " Q"],
    owner_of_candidate: Int[Tensor, " C"],
    scores_at_once: int,
    k: int,
    stages: Stages,
) -> Direction:
    """One direction by ITC, a chunk of queries at a time."""
    candidates = owner_of_candidate.to(queries.device)
    rows = max(1, scores_at_once // len(candidates))
    kept = torch.empty(len(queries), min(k, len(candidates)), dtype=torch.int64)  # one block: no holes in the heap
    places = torch.empty(len(queries), dtype=torch.int64)
    for start in range(0, len(queries), rows):
        chunk = slice(start, min(start + rows, len(queries)))
        with torch.autocast(queries.device.type, enabled=False):  # in bf16 most neighbours would be equal
            keys = order_keys(similarity(queries[chunk]))
        kept[chunk] = best(keys, k).cpu()
        places[chunk] = ranks(keys, owner[chunk].to(keys.device)[:, None] == candidates).cpu()
        stages.add(chunk.stop - start)
    shortlist = unpack(kept)
    return Direction(
        shortlist=shortlist.candidates,
        itc=shortlist.scores,
        itm=None,
        owner=owner,
        owner_of_candidate=owner_of_candidate,
        itc_ranks=places,
    )


def _rerank(
    model: Fuses,
    images: ImageTokens,
    texts: TextStore,
    both: tuple[Direction, Direction],
    config: RetrievalConfig,
    stages: Stages,
) -> tuple[Direction, Direction]:
    """Both directions with the match logits of their shortlists; a pair that stands in both is scored once."""
    image_to_text, text_to_image = both
    count = len(texts.lengths)
    pairs_i2t = torch.arange(len(image_to_text.owner))[:, None] * count + image_to_text.shortlist
    pairs_t2i = text_to_image.shortlist * count + torch.arange(count)[:, None]
    pairs = torch.unique(torch.cat([pairs_i2t.flatten(), pairs_t2i.flatten()]))  # sorted, so image by image
    scores = match_pairs(
        model, images, texts, pairs // count, pairs % count, stages, texts_at_once=config.texts_at_once
    )
    return (
        replace(image_to_text, itm=scores[torch.searchsorted(pairs, pairs_i2t)]),
        replace(text_to_image, itm=scores[torch.searchsorted(pairs, pairs_t2i)]),
    )
