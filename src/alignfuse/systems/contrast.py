"""What the contrast of a batch with its keys gives: the logits of ITC, and the candidates for ITM's negatives.

Shapes: B queries, K keys, N candidates, E embedding width.
"""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor

from alignfuse.objectives.matching import mining_weights, nearest_share, uniform_weights
from alignfuse.state.queue import Keys


class Candidates(NamedTuple):
    """What each query's negative is drawn from."""

    logits: Float[Tensor, "B N"]
    barred: Bool[Tensor, "B N"]  # true partners, and what is no candidate at all

    def weights(self, *, mined: bool) -> Float[Tensor, "B N"]:
        """Probability of each to be drawn: by similarity, or all alike."""
        return mining_weights(self.logits, self.barred) if mined else uniform_weights(self.barred)

    def near(self, weights: Float[Tensor, "B N"]) -> Float[Tensor, ""]:
        """Sum over the queries of the weight on the most similar quarter."""
        return nearest_share(weights, self.logits, self.barred).sum()

    def exist(self) -> Bool[Tensor, " B"]:
        """Which queries have one."""
        return (~self.barred).any(1)


class Direction(NamedTuple):
    """One direction of the contrast: every query of the batch against every key."""

    logits: Float[Tensor, "B K"]
    positive: Bool[Tensor, "B K"]
    taught: Float[Tensor, "B E"]  # the teacher's features of the queries
    keys: Float[Tensor, "K E"]
    batch: slice  # where the own batch stands among the keys

    def in_batch(self) -> Candidates:
        """The own batch."""
        return Candidates(self.logits[:, self.batch], self.positive[:, self.batch])

    def in_queue(self, keys: Keys) -> Candidates:
        """All keys whose caption is known."""
        return Candidates(self.logits, self.positive | ~keys.readable())
