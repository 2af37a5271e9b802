"""The two things that travel between encoders: image tokens and text.

Shapes: B batch, L tokens, D width.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor, cat
from torch.nn.functional import pad


class Tokens(NamedTuple):
    """States of a token sequence; states at masked-out places are 0 at the verbs' surface."""

    states: Float[Tensor, "B L D"]
    mask: Bool[Tensor, "B L"]  # True = real token
    grid: tuple[int, int] | None = None  # image tokens: rows and columns of patches
    prefix: int = 0  # tokens before the grid ([CLS])


class Text(NamedTuple):
    """Token ids with their mask; `states` is filled by `encode_text`."""

    ids: Int[Tensor, "B L"]
    mask: Bool[Tensor, "B L"]  # True = real token
    states: Float[Tensor, "B L D"] | None = None

    def rows(self, index: Int[Tensor, " R"]) -> "Text":
        """The chosen texts."""
        return Text(self.ids[index], self.mask[index], None if self.states is None else self.states[index])


def join(texts: Sequence[Text]) -> Text:
    """Encoded texts under each other, filled up to the longest."""
    length = max(text.ids.shape[1] for text in texts)
    ids, masks, states = [], [], []
    for text in texts:
        if text.states is None:
            raise ValueError("only encoded texts are joined: call encode_text first")
        missing = length - text.ids.shape[1]
        ids.append(pad(text.ids, (0, missing)))
        masks.append(pad(text.mask, (0, missing)))
        states.append(pad(text.states, (0, 0, 0, missing)))
    return Text(cat(ids), cat(masks), cat(states))
