"""Queue of teacher features: keys of earlier batches for the contrastive loss (ALBEF section 3.2; He et al. 2020).

Shapes: Q slots, K new entries, E embedding width, W places for a caption's tokens (0: the captions are not kept).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from alignfuse.blocks.tokens import Text

UNKNOWN_ID = -1
NO_TOKEN = -1


class Keys(NamedTuple):
    """Image and text features that were taken from the same pairs."""

    images: Float[Tensor, "K E"]
    texts: Float[Tensor, "K E"]
    image_ids: Int[Tensor, " K"]
    caption_ids: Int[Tensor, " K"]
    filled: Bool[Tensor, " K"]  # False = an empty slot, which is no negative
    captions: Int[Tensor, "K W"]  # token ids, NO_TOKEN behind the last

    def readable(self) -> Bool[Tensor, " K"]:
        """Entries whose caption is known."""
        return self.filled & (self.captions[:, 0] != NO_TOKEN)


def written(text: Text, places: int) -> Int[Tensor, "B W"]:
    """The captions as a queue keeps them, in so many places."""
    ids = text.ids.masked_fill(~text.mask, NO_TOKEN)[:, :places]
    return pad(ids, (0, places - ids.shape[1]), value=NO_TOKEN)


def read(captions: Int[Tensor, "B W"]) -> Text:
    """Captions of a queue as texts, as wide as the longest."""
    longest = int((captions != NO_TOKEN).sum(dim=1).max())
    captions = captions[:, :longest].long()
    return Text(captions.clamp(min=0), captions != NO_TOKEN)


class FeatureQueue(nn.Module):
    """The last Q pairs of teacher features, first in, first out.

    An empty slot is told apart from a filled one whose ids are not known (as loaded from a checkpoint without ids): the
    first is no key at all, the second a negative of everything.
    """

    images: Tensor
    texts: Tensor
    image_ids: Tensor
    caption_ids: Tensor
    filled: Tensor
    captions: Tensor
    pointer: Tensor

    def __init__(self, size: int, embed_dim: int, caption_tokens: int = 0) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("images", torch.zeros(size, embed_dim))
        self.register_buffer("texts", torch.zeros(size, embed_dim))
        self.register_buffer("image_ids", torch.full((size,), UNKNOWN_ID, dtype=torch.long))
        self.register_buffer("caption_ids", torch.full((size,), UNKNOWN_ID, dtype=torch.long))
        self.register_buffer("filled", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("captions", torch.full((size, caption_tokens), NO_TOKEN, dtype=torch.int32))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))

    def keys(self) -> Keys:
        """What the queue holds now (the tensors themselves, not copies)."""
        return Keys(self.images, self.texts, self.image_ids, self.caption_ids, self.filled, self.captions)

    @torch.no_grad()
    def push(self, keys: Keys) -> None:
        """Write K entries behind the last ones, over the oldest; of more than Q entries the last Q stay."""
        if self.size == 0:
            return
        count = len(keys.images)
        last = Keys(*(part[-self.size :] for part in keys))
        skipped = count - len(last.images)
        places = (self.pointer + skipped + torch.arange(len(last.images), device=self.pointer.device)) % self.size
        for slots, new in zip(self.keys(), last, strict=True):
            slots[places] = new.to(slots.dtype)
        self.pointer.copy_((self.pointer + count) % self.size)

    @torch.no_grad()
    def fill(self, images: Float[Tensor, "Q E"], texts: Float[Tensor, "Q E"], pointer: int) -> None:
        """Take over a full queue whose ids are not known."""
        self.images.copy_(images)
        self.texts.copy_(texts)
        self.image_ids.fill_(UNKNOWN_ID)
        self.caption_ids.fill_(UNKNOWN_ID)
        self.captions.fill_(NO_TOKEN)
        self.filled.fill_(True)
        self.pointer.fill_(pointer)
