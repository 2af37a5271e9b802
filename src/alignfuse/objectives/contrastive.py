"""Image-text contrastive loss with several positives and soft targets (ALBEF section 3.2, eq. 1-2 and 6).

Shapes: B queries, K keys, E embedding width, I images, T texts, P shared (image, caption) pairs.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import log_softmax

CAPTION_BITS = 32  # a shared pair is the one number image id * 2^32 + caption id


def scaled_similarity(
    queries: Float[Tensor, "B E"], keys: Float[Tensor, "K E"], temperature: Float[Tensor, ""]
) -> Float[Tensor, "B K"]:
    """Dot products over the temperature, in float32 whatever the autocast."""
    with torch.autocast(queries.device.type, enabled=False):
        return queries.float() @ keys.float().T / temperature.float()


def positive_pairs(
    images: Int[Tensor, " I"], image_of_text: Int[Tensor, " T"], captions: Int[Tensor, " T"], shared: Int[Tensor, " P"]
) -> Bool[Tensor, "I T"]:
    """Which (image, text) pairs are true: text of that image, or a caption that also stands under that image.

    `shared` holds the sorted numbers image id * 2^32 + caption id of all captions that stand under two or more images.
    A negative id is unknown and makes no pair, not even with its like.
    """
    positive = (images[:, None] == image_of_text[None, :]) & (images[:, None] >= 0)
    if len(shared):
        pairs = (images[:, None] << CAPTION_BITS) + captions[None, :]
        place = torch.searchsorted(shared, pairs).clamp(max=len(shared) - 1)
        known = (images[:, None] >= 0) & (captions[None, :] >= 0)
        positive = positive | ((shared[place] == pairs) & known)
    return positive


def equal_targets(positive: Bool[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """Equal mass on every positive of a row; a row without a positive gets no mass."""
    mass = positive.float()
    return mass / mass.sum(dim=1, keepdim=True).clamp(min=1.0)


def contrastive_loss(
    logits: Float[Tensor, "B K"], targets: Float[Tensor, "B K"], valid: Bool[Tensor, " K"]
) -> Float[Tensor, ""]:
    """Sum over rows of the cross-entropy with soft targets; keys that are not valid do not exist.

    Every row needs a valid key with mass (its own). Divide by B for the mean of the paper.
    """
    log_probabilities = log_softmax(logits.masked_fill(~valid, -torch.inf), dim=1)
    return -(targets * log_probabilities.masked_fill(~valid, 0.0)).sum()
