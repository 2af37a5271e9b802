"""Small heads on top of the encoders.

Shapes: B batch, D width, E embedding width, M masked places, V vocabulary.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear, normalize


class Projection(nn.Module):
    """Linear map to the shared space, scaled to unit length (ALBEF section 3.2)."""

    def __init__(self, width: int, embed_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, embed_dim)

    def forward(self, state: Float[Tensor, "*B D"]) -> Float[Tensor, "*B E"]:
        """Unit vectors in float32."""
        return normalize(self.linear(state).float(), dim=-1, eps=1e-12)


class MaskedLanguageHead(nn.Module):
    """BERT's vocabulary head; the output matrix is the word-embedding table, handed in at each call (tied)."""

    def __init__(self, width: int, vocab_size: int, *, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = nn.GELU()
        self.norm = nn.LayerNorm(width, eps=eps)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, states: Float[Tensor, "M D"], words: Float[Tensor, "V D"]) -> Float[Tensor, "M V"]:
        """Logits over the vocabulary; `words` is the word-embedding table."""
        return linear(self.norm(self.activation(self.dense(states))), words, self.bias)
