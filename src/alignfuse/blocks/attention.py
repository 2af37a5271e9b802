"""Multi-head attention with one fused projection per source, for self-attention and for reading a memory.

Shapes: B queries' batch, N remembered sequences, L query tokens, P real tokens of a packed batch, S key tokens,
D width, M memory width, H heads, E width per head.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention


class KeyValue(NamedTuple):
    """Keys and values of N sequences for one attention layer: made once, read by any number of queries."""

    keys: Float[Tensor, "N H S E"]
    values: Float[Tensor, "N H S E"]
    mask: Bool[Tensor, "N S"]  # True = may be read

    def select(self, index: Int[Tensor, " B"]) -> "KeyValue":
        """The sequences that B readers read: row i is sequence `index[i]`."""
        return KeyValue(self.keys[index], self.values[index], self.mask[index])


class Packing(NamedTuple):
    """Where the P real tokens of a padded batch stand: all but attention is computed on them alone."""

    places: Int[Tensor, " P"]  # row * L + column
    batch: int
    length: int

    @staticmethod
    def of(mask: Bool[Tensor, "B L"]) -> "Packing | None":
        """The packing of this mask; None where nothing is padded."""
        places = mask.flatten().nonzero().flatten()
        return None if len(places) == mask.numel() else Packing(places, *mask.shape)

    def pack(self, padded: Float[Tensor, "B L D"]) -> Float[Tensor, "P D"]:
        """The real tokens, row after row."""
        return padded.flatten(0, 1)[self.places]

    def unpack(self, packed: Float[Tensor, "P D"]) -> Float[Tensor, "B L D"]:
        """The padded batch, with zeros at padded places."""
        padded = packed.new_zeros(self.batch * self.length, packed.shape[-1])
        return padded.index_copy(0, self.places, packed).reshape(self.batch, self.length, packed.shape[-1])


def attention_mask(
    mask: Bool[Tensor, "B L"], *, causal: bool = False, prefix: Int[Tensor, " B"] | None = None
) -> Bool[Tensor, "B #L L"]:
    """Which key (last axis) each token may attend to; True = may attend.

    A causal token sees itself and what stands before it; with `prefix`, the first `prefix[b]` tokens are seen by all
    tokens of row b (prefix language modelling, SimVLM section 3.2).
    """
    if not causal:
        return mask[:, None, :]
    length = mask.shape[1]
    place = torch.arange(length, device=mask.device)
    seen = (place[None, :] <= place[:, None])[None]
    if prefix is not None:
        seen = seen | (place[None, None, :] < prefix[:, None, None])
    return seen & mask[:, None, :]


class Attention(nn.Module):
    """Scaled dot-product attention with H heads. `memory_width` makes it cross-attention to states of that width."""

    def __init__(self, width: int, heads: int, *, memory_width: int | None = None, dropout: float = 0.0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"width {width} is not divisible by {heads} heads")
        self.heads = heads
        self.dropout = dropout
        if memory_width is None:
            self.query_key_value = nn.Linear(width, 3 * width)
        else:
            self.query = nn.Linear(width, width)
            self.key_value = nn.Linear(memory_width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(
        self,
        x: Float[Tensor, "*tokens D"],
        mask: Bool[Tensor, "B #L L"],
        packing: Packing | None = None,
        *,
        first_only: bool = False,
    ) -> Float[Tensor, "*asking D"]:
        """Self-attention over padded tokens [B, L, D], or over packed ones [P, D] with their packing.

        `first_only`: only the first token of each row asks; gives [B, 1, D]. A row that may attend to nothing gives the
        bias of the output projection.
        """
        projected = self.query_key_value(x)
        if packing is not None:
            projected = packing.unpack(projected)
        query, keys, values = self._split(projected, 3)
        if first_only:
            return self._attend(query[:, :, :1], keys, values, mask[:, None, :1])
        return self._attend(query, keys, values, mask[:, None], packing)

    def remember(self, states: Float[Tensor, "N S M"], mask: Bool[Tensor, "N S"]) -> KeyValue:
        """Keys and values of a memory, to be read with `read`."""
        keys, values = self._split(self.key_value(states), 2)
        return KeyValue(keys, values, mask)

    def read(
        self,
        x: Float[Tensor, "*tokens D"],
        memory: KeyValue,
        index: Int[Tensor, " B"] | None = None,
        packing: Packing | None = None,
    ) -> Float[Tensor, "*tokens D"]:
        """Cross-attention: row i reads sequence `index[i]` of the memory, or sequence i without an index.

        Queries do not see each other, so all rows that read the one sequence of a single memory form one long query,
        and packed ones need no padding there.
        """
        projected, shape = self.query(x), x.shape
        single = len(memory.keys) == 1
        if single:
            projected, packing = projected.reshape(1, -1, shape[-1]), None
        else:
            projected = projected if packing is None else packing.unpack(projected)
            memory = memory if index is None else memory.select(index)
        (query,) = self._split(projected, 1)
        return self._attend(query, memory.keys, memory.values, memory.mask[:, None, None, :], packing).reshape(shape)

    def _split(self, projected: Float[Tensor, "B L P"], parts: int) -> tuple[Tensor, ...]:
        split = projected.reshape(*projected.shape[:2], parts, self.heads, -1)  # [B, L, parts, H, E]
        return tuple(part.transpose(1, 2) for part in split.unbind(2))

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, packing: Packing | None = None
    ) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        heads = scaled_dot_product_attention(query, keys, values, mask, dropout_p=dropout).transpose(1, 2).flatten(2)
        out: Tensor = self.out(heads if packing is None else packing.pack(heads))
        return out
