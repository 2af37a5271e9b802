"""Retrieval recall in both directions, for any number of captions per image.

Image to text is a hit at K when ANY caption of the image stands among the K best texts; text to image when the one
image of the text stands among the K best images. Equal scores: see `metrics.ordering`. Figures are percentages.

Shapes: I images, T texts, Q queries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import torch
from jaxtyping import Float, Int, Int64
from torch import Tensor

from alignfuse.metrics.ordering import order_keys, ranks

RECALL_AT = (1, 5, 10)


@dataclass(frozen=True, kw_only=True)
class Recall:
    """One direction. Queries that own no candidate (an image without caption) are candidates only and not counted."""

    at: dict[int, float]  # K -> percent of the queries whose best own candidate stands among the first K
    median_rank: float  # 1 = first
    mean_rank: float
    queries: int
    candidates: int

    @property
    def mean(self) -> float:
        """Average of the recalls, in percent."""
        return fmean(self.at.values())

    def to_dict(self) -> dict[str, float | int]:
        """Named figures; recalls in percent, ranks from 1."""
        recalls: dict[str, float | int] = {f"R@{count}": value for count, value in self.at.items()}
        return recalls | {
            "mean": self.mean,
            "median_rank": self.median_rank,
            "mean_rank": self.mean_rank,
            "queries": self.queries,
            "candidates": self.candidates,
        }


@dataclass(frozen=True, kw_only=True)
class RecallBothWays:
    """Both directions over the same images and texts."""

    image_to_text: Recall
    text_to_image: Recall

    @property
    def mean(self) -> float:
        """Mean recall: average of both directions' averages, in percent."""
        return (self.image_to_text.mean + self.text_to_image.mean) / 2

    def to_dict(self) -> dict[str, object]:
        """Named figures of both directions and their mean recall."""
        return {
            "image_to_text": self.image_to_text.to_dict(),
            "text_to_image": self.text_to_image.to_dict(),
            "mean_recall": self.mean,
        }


def image_to_text_ranks(scores: Float[Tensor, "I T"], image_of: Int[Tensor, " T"]) -> Int64[Tensor, " I"]:
    """Place (0 = first) of the best own caption of each image; `image_of` = the image of each text, -1 = none."""
    images = torch.arange(len(scores), device=scores.device)
    return ranks(order_keys(scores), images[:, None] == image_of)


def text_to_image_ranks(scores: Float[Tensor, "T I"], image_of: Int[Tensor, " T"]) -> Int64[Tensor, " T"]:
    """Place (0 = first) of the image of each text."""
    images = torch.arange(scores.shape[1], device=scores.device)
    return ranks(order_keys(scores), image_of[:, None] == images)


def recall(places: Int[Tensor, " Q"], candidates: int, at: Sequence[int] = RECALL_AT) -> Recall:
    """Figures of one direction from the places that the functions above give. Without any query: ValueError."""
    counted = (places[places >= 0] + 1).tolist()
    if not counted:
        raise ValueError("no query owns a candidate: there is nothing to measure")
    return Recall(
        at={count: 100 * sum(place <= count for place in counted) / len(counted) for count in at},
        median_rank=float(median(counted)),
        mean_rank=fmean(counted),
        queries=len(counted),
        candidates=candidates,
    )


def recall_both_ways(
    scores_i2t: Float[Tensor, "I T"],
    scores_t2i: Float[Tensor, "T I"],
    image_of: Int[Tensor, " T"],
    at: Sequence[int] = RECALL_AT,
) -> RecallBothWays:
    """Figures of two whole score matrices (those of ITM re-ranking differ in the two directions)."""
    images, texts = scores_i2t.shape
    return RecallBothWays(
        image_to_text=recall(image_to_text_ranks(scores_i2t, image_of), texts, at),
        text_to_image=recall(text_to_image_ranks(scores_t2i, image_of), images, at),
    )
