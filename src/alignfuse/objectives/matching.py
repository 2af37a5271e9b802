"""Image-text matching with hard negatives mined from the contrastive similarities (ALBEF section 3.2, eq. 4).

Shapes: B queries, N candidates, R scored pairs.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax


def mining_weights(logits: Float[Tensor, "B N"], positive: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Probability of each candidate to be drawn as the negative of its query: softmax over all but the positives.

    Positives are masked before the softmax and in float32, so that no temperature can leave a row without mass.
    A row whose candidates are all positive is all 0.
    """
    weights = softmax(logits.detach().float().masked_fill(positive, -torch.inf), dim=1)
    return weights.masked_fill(positive.all(dim=1, keepdim=True), 0.0)


def uniform_weights(positive: Bool[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    """Every candidate but the positives with the same probability: random negatives."""
    mass = (~positive).float()
    return mass / mass.sum(dim=1, keepdim=True).clamp(min=1.0)


def nearest_share(
    weights: Float[Tensor, "B N"], logits: Float[Tensor, "B N"], positive: Bool[Tensor, "B N"]
) -> Float[Tensor, " B"]:
    """Mass on the most similar quarter of each row's negatives: 0.25 for random ones, towards 1 when mining bites."""
    most = (logits.shape[1] + 3) // 4
    order = logits.detach().masked_fill(positive, -torch.inf).topk(most, dim=1).indices
    near = torch.arange(most, device=weights.device)[None] < ((~positive).sum(1, keepdim=True) + 3) // 4
    return (weights.gather(1, order) * near).sum(dim=1)


def matching_loss(
    logits: Float[Tensor, "R 2"], labels: Int[Tensor, " R"], valid: Bool[Tensor, " R"]
) -> Float[Tensor, ""]:
    """Sum of the two-class cross-entropy over the valid pairs; class 1 = the text fits the image."""
    losses = cross_entropy(logits.float(), labels, reduction="none")
    return losses.masked_fill(~valid, 0.0).sum()
