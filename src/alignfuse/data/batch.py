"""What a data loader hands to a system.

Shapes: B batch, L tokens, H and W pixels.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Int, Num
from torch import Tensor

from alignfuse.blocks.tokens import Text

UNKNOWN_ID = -1  # an image or caption whose identity is not known: equal to nothing, itself included


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch of image-text pairs. Every field is optional: a system reads what it needs.

    Ids are running numbers of the distinct images and captions of the data set (0, 1, ...), or `UNKNOWN_ID`.
    `seeds` holds one number per sample, a function of (run seed, epoch, sample): every random choice of the step is
    derived from it, whatever the rank, the worker or the neighbours in the batch.
    """

    images: Num[Tensor, "B 3 H W"] | None = None  # uint8 pixels 0-255; float = already normalised
    text: Text | None = None
    maskable: Bool[Tensor, "B L"] | None = None  # True = MLM may mask this token (no special token, no padding)
    words: Int[Tensor, "B L"] | None = None  # index of the word that a token belongs to; -1 = none
    image_ids: Int[Tensor, " B"] | None = None
    caption_ids: Int[Tensor, " B"] | None = None
    seeds: Int[Tensor, " B"] | None = None

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch with every tensor on `device`."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory, from which copies to an accelerator run beside the computation."""
        return self._each(Tensor.pin_memory)

    def __len__(self) -> int:
        for value in (self.images, self.image_ids, self.caption_ids):
            if value is not None:
                return len(value)
        return 0 if self.text is None else len(self.text.ids)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        def changed(value: object) -> object:
            if isinstance(value, Tensor):
                return change(value)
            if isinstance(value, Text):
                states = None if value.states is None else change(value.states)
                return Text(change(value.ids), change(value.mask), states)
            return value

        return Batch(**{field.name: changed(getattr(self, field.name)) for field in fields(self)})  # type: ignore[arg-type]
