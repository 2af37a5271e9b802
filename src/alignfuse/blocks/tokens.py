"""The two things that travel between encoders: image tokens and text.

Shapes: B batch, L tokens, D width.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor


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
