"""Multi-head attention with one fused projection per source, for self-attention and for reading a memory.

Shapes: B queries' batch, N remembered sequences, L query tokens, S key tokens, D width, M memory width,
H heads, E width per head.
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

    def forward(self, x: Float[Tensor, "B L D"], mask: Bool[Tensor, "B #L L"]) -> Float[Tensor, "B L D"]:
        """Self-attention. A row that may attend to nothing gives the bias of the output projection."""
        query, keys, values = self._split(self.query_key_value(x), 3)
        return self._attend(query, keys, values, mask[:, None])

    def remember(self, states: Float[Tensor, "N S M"], mask: Bool[Tensor, "N S"]) -> KeyValue:
        """Keys and values of a memory, to be read with `read`."""
        keys, values = self._split(self.key_value(states), 2)
        return KeyValue(keys, values, mask)

    def read(
        self, x: Float[Tensor, "B L D"], memory: KeyValue, index: Int[Tensor, " B"] | None = None
    ) -> Float[Tensor, "B L D"]:
        """Cross-attention: row i reads sequence `index[i]` of the memory, or sequence i without an index.

        Queries do not see each other, so all rows that read the one sequence of a single memory form one long query.
        """
        batch, length, _ = x.shape
        single = len(memory.keys) == 1
        if single:
            x = x.reshape(1, batch * length, -1)
        elif index is not None:
            memory = memory.select(index)
        (query,) = self._split(self.query(x), 1)
        out = self._attend(query, memory.keys, memory.values, memory.mask[:, None, None, :])
        return out.reshape(batch, length, -1)

    def _split(self, projected: Float[Tensor, "B L P"], parts: int) -> tuple[Tensor, ...]:
        split = projected.unflatten(-1, (parts, self.heads, -1))  # [B, L, parts, H, E]
        return tuple(split[:, :, part].transpose(1, 2) for part in range(parts))

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        heads = scaled_dot_product_attention(query, keys, values, mask, dropout_p=dropout)
        out: Tensor = self.out(heads.transpose(1, 2).flatten(2))
        return out
