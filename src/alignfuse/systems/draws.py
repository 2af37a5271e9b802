"""Random choices of training, by name.

`RandomDraws` is counter-based: a draw is a hash of (sample seed, name, place), so it depends on nothing else - not on
the rank, the worker, the batch around the sample or the draws of another objective - and there is no state to save.
"""

import zlib
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor

from alignfuse.data.batch import Batch
from alignfuse.objectives.masked_language import Masked, choose_places, corrupt
from alignfuse.systems.protocols import Masking

GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed number


def scramble(x: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """The finaliser of SplitMix64 (Steele et al. 2014) on wrapping 64-bit integers."""
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    return x ^ _shifted(x, 31)


def _shifted(x: Int[Tensor, "..."], by: int) -> Int[Tensor, "..."]:
    """Logical shift to the right."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def uniform(seeds: Int[Tensor, " B"], name: str, columns: int) -> Float[Tensor, "B columns"]:
    """Numbers in [0, 1) in float64: entry (b, c) is a function of (seeds[b], name, c)."""
    start = scramble(seeds ^ ((zlib.crc32(name.encode()) * 0x9E3779B1) & (2**63 - 1)))
    counter = (torch.arange(columns, device=seeds.device) + 1) * GOLDEN
    bits = scramble(start[:, None] + counter[None, :])
    return ((bits >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


class RandomDraws:
    """Draws for one batch, from its seeds."""

    def __init__(self, seeds: Int[Tensor, " B"]) -> None:
        self.seeds = seeds

    def mask(self, batch: Batch, masking: Masking) -> Masked:
        """BERT's corruption of the batch's texts."""
        if batch.text is None or batch.maskable is None:
            raise ValueError("masking needs a batch with text and with the places that may be masked")
        ids = batch.text.ids
        chance, action, replacement = (uniform(self.seeds, f"mask.{part}", ids.shape[1]) for part in "car")
        words = batch.words if masking.whole_word else None
        chosen = choose_places(batch.maskable, chance, masking.probability, words)
        ordinary = masking.ordinary.to(ids.device)
        return corrupt(ids, chosen, action, replacement, mask_id=masking.mask_id, ordinary=ordinary)

    def mine(self, name: str, weights: Float[Tensor, "B N"]) -> Int[Tensor, " B"]:
        """One draw per row by the inverse of the cumulated weights; a candidate without mass is never drawn."""
        cumulated = weights.double().cumsum(dim=1)
        threshold = uniform(self.seeds, f"mine.{name}", 1) * cumulated[:, -1:]
        drawn = torch.searchsorted(cumulated, threshold, right=True).clamp(max=weights.shape[1] - 1)
        massless = weights.gather(1, drawn) <= 0  # rounding at the upper end
        return drawn.where(~massless, weights.argmax(dim=1, keepdim=True)).squeeze(1)


class GivenDraws:
    """Draws that were fixed beforehand, as parity tests need; remembers the weights it was asked with."""

    def __init__(self, masked: Masked | None = None, mined: Mapping[str, Tensor] | None = None) -> None:
        self.masked = masked
        self.mined = dict(mined or {})
        self.weights: dict[str, Tensor] = {}

    def mask(self, batch: Batch, masking: Masking) -> Masked:
        """The given corruption."""
        if self.masked is None:
            raise ValueError("no masks were given")
        return self.masked

    def mine(self, name: str, weights: Float[Tensor, "B N"]) -> Int[Tensor, " B"]:
        """The given indices."""
        self.weights[name] = weights
        return self.mined[name]
