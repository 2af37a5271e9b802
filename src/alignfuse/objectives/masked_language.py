"""Masked language modelling (Devlin et al. 2019, section 3.1; ALBEF section 3.2, eq. 3).

Shapes: B texts, L tokens, M masked places, V vocabulary.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100  # label of a place that is not predicted


class Masked(NamedTuple):
    """Texts with corrupted places and what stood there."""

    ids: Int[Tensor, "B L"]
    labels: Int[Tensor, "B L"]  # original id where masked, else IGNORED

    def where(self) -> Int[Tensor, " M"]:
        """Flat places (row * L + column) of the masked tokens."""
        return (self.labels.flatten() != IGNORED).nonzero().flatten()


def choose_places(
    maskable: Bool[Tensor, "B L"],
    chance: Float[Tensor, "B L"],
    probability: float,
    words: Int[Tensor, "B L"] | None = None,
) -> Bool[Tensor, "B L"]:
    """Places whose draw lies under the probability; with `words`, the pieces of a word share the draw of the first."""
    if words is not None:
        length = words.shape[1]
        place = torch.arange(length, device=words.device).expand_as(words)
        same = words[:, :, None] == words[:, None, :]  # [B, L, L]
        first = place[:, None, :].where(same, length).amin(dim=2)
        chance = chance.gather(1, first)
    return maskable & (chance < probability)


def corrupt(
    ids: Int[Tensor, "B L"],
    chosen: Bool[Tensor, "B L"],
    action: Float[Tensor, "B L"],
    replacement: Float[Tensor, "B L"],
    *,
    mask_id: int,
    ordinary: Int[Tensor, " V"],
) -> Masked:
    """80% [MASK], 10% a random ordinary word, 10% unchanged of the chosen places; draws are uniform in [0, 1)."""
    random_ids = ordinary[(replacement * len(ordinary)).long().clamp(max=len(ordinary) - 1)]
    corrupted = ids.where(action >= 0.9, random_ids).where(action >= 0.8, torch.full_like(ids, mask_id))
    return Masked(corrupted.where(chosen, ids), ids.where(chosen, torch.full_like(ids, IGNORED)))


def masked_language_loss(logits: Float[Tensor, "M V"], labels: Int[Tensor, " M"]) -> Float[Tensor, ""]:
    """Sum of the cross-entropy over the masked places; no masked place gives a 0 that stays attached to the graph."""
    return cross_entropy(logits.float(), labels, reduction="sum")
