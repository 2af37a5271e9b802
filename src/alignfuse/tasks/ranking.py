"""The order that retrieval gives to the candidates of each query.

First the shortlist, the K best by ITC, in the order of the chosen score; then all others in ITC order. So nothing that
was not re-ranked stands above what was. (The official code gives all others the score -100 and leaves their order to
the sort.)

Shapes: Q queries, K shortlisted candidates, C candidates.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float32, Int, Int64
from torch import Tensor

from alignfuse.errors import UserError
from alignfuse.metrics.ordering import NO_RANK, order_keys, ranks

Score = Literal["itm", "itc+itm", "itc"]  # match logit (ALBEF); weighted cosine + match logit; cosine


def require_score(score: str) -> None:
    """UserError where there is no such score."""
    if score not in get_args(Score):
        raise UserError(f"there is no score {score!r}: choose one of {', '.join(get_args(Score))}")


@dataclass(frozen=True, kw_only=True)
class Direction:
    """One direction: images asking for texts or texts asking for images."""

    shortlist: Int64[Tensor, "Q K"]  # candidates, in ITC order
    itc: Float32[Tensor, "Q K"]  # cosine
    itm: Float32[Tensor, "Q K"] | None  # match logit; None without re-ranking
    owner: Int[Tensor, " Q"]  # what a query and its own candidates share: the image (-1 = none)
    owner_of_candidate: Int[Tensor, " C"]
    itc_ranks: Int64[Tensor, " Q"]  # place of the best own candidate by ITC alone, 0 = first; `NO_RANK` without one
    itc_weight: float = 1.0  # of the cosine in itc+itm

    def scores(self, score: Score) -> Float32[Tensor, "Q K"]:
        """What orders the shortlist."""
        if score == "itc":
            return self.itc
        if self.itm is None:
            raise ValueError(f"no score {score}: the shortlist was not re-ranked")
        return self.itm if score == "itm" else self.itc_weight * self.itc + self.itm

    def ranks(self, score: Score) -> Int64[Tensor, " Q"]:
        """Place of the best own candidate: in the shortlist ordered by `score` or, outside of it, by ITC."""
        own = self.owner_of_candidate[self.shortlist] == self.owner[:, None]
        inside = ranks(order_keys(self.scores(score), self.shortlist), own)
        return torch.where(inside == NO_RANK, self.itc_ranks, inside)


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Both directions, and what it took."""

    image_to_text: Direction
    text_to_image: Direction
    score: Score
    pairs_fused: int
    resolution: tuple[int, int]  # rows and columns of pixels
    seconds: dict[str, float]  # per stage
