"""One total order of candidates, from which shortlists, searches and ranks are all taken.

A candidate stands ahead of another when its score is higher or, at equal scores, when its index is higher: the order of
a stable ascending sort read backwards, which is the reproducible form of the official ALBEF evaluation. Score (float32)
and index are packed into one integer, so that the order has no ties left, one comparison decides it, and chunks can be
merged.

Shapes: Q queries, C candidates, K best ones.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Float32, Int, Int64
from torch import Tensor

NO_RANK = -1  # the rank of a query that owns none of the candidates
_LOWEST = torch.iinfo(torch.int64).min
_INDEX_BITS = 32
_MAGNITUDE = 0x7FFFFFFF


class Best(NamedTuple):
    """The best candidates of each query, best first."""

    candidates: Int64[Tensor, "Q K"]
    scores: Float32[Tensor, "Q K"]


def order_keys(scores: Float[Tensor, "Q C"], index: Int[Tensor, "#Q C"] | None = None) -> Int64[Tensor, "Q C"]:
    """Integers that sort as the candidates do, higher = ahead. `index` = which candidate a column is (the column itself
    if not given), below 2**32. Scores that are not numbers have no order: ValueError."""
    if scores.isnan().any():
        raise ValueError("scores hold NaN: they cannot be ranked")
    if index is None:
        index = torch.arange(scores.shape[1], device=scores.device)[None]
    bits = (scores.float() + 0.0).view(torch.int32)  # adding 0 makes -0.0 and 0.0 the same
    return (_flip_negative(bits).long() << _INDEX_BITS) + index


def best(keys: Int64[Tensor, "Q C"], count: int) -> Int64[Tensor, "Q K"]:
    """The `count` highest keys of each query (all of them where there are fewer), best first."""
    return keys.topk(min(count, keys.shape[1]), dim=1).values


def unpack(keys: Int64[Tensor, "Q K"]) -> Best:
    """The candidates and their scores, which `order_keys` packed."""
    bits = _flip_negative((keys >> _INDEX_BITS).int())
    return Best(keys & ((1 << _INDEX_BITS) - 1), bits.view(torch.float32))


def ranks(keys: Int64[Tensor, "Q C"], own: Bool[Tensor, "Q C"]) -> Int64[Tensor, " Q"]:
    """Place (0 = first) of the best candidate that each query owns; `NO_RANK` where it owns none."""
    best_own = keys.masked_fill(~own, _LOWEST).amax(dim=1, keepdim=True)
    return (keys > best_own).sum(dim=1).masked_fill(~own.any(dim=1), NO_RANK)


def _flip_negative(bits: Tensor) -> Tensor:
    """Turns float bits into integers of the same order, and back: the magnitude of negative numbers is inverted."""
    return bits ^ ((bits >> 31) & _MAGNITUDE)
