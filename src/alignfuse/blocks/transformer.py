"""The one transformer block: pre- or post-norm, with or without cross-attention to a memory.

Shapes: B batch, L tokens, P real tokens of a packed batch, D width, N remembered sequences.
"""

from typing import Literal

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from alignfuse.blocks.attention import Attention, KeyValue, Packing

Norm = Literal["pre", "post"]


class QuickGELU(nn.Module):
    """The sigmoid approximation of GELU that the released CLIP weights were trained with."""

    def forward(self, x: Tensor) -> Tensor:
        """x * sigmoid(1.702 x)."""
        return x * (1.702 * x).sigmoid()


ACTIVATIONS: dict[str, type[nn.Module]] = {"gelu": nn.GELU, "quick_gelu": QuickGELU, "relu": nn.ReLU}


class Block(nn.Module):
    """Self-attention, optional cross-attention, feed-forward; each with its residual and LayerNorm.

    Pre-norm: x + f(LN(x)) (ViT). Post-norm: LN(x + f(x)) (BERT). `memory_width` adds cross-attention to states of that
    width. The three steps are public, for systems that recombine them.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        hidden: int,
        norm: Norm,
        eps: float,
        dropout: float = 0.0,
        memory_width: int | None = None,
        activation: str = "gelu",
    ) -> None:
        super().__init__()
        self.pre = norm == "pre"
        self.attention = Attention(width, heads, dropout=dropout)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        if memory_width is not None:
            self.cross = Attention(width, heads, memory_width=memory_width, dropout=dropout)
            self.cross_norm = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, hidden)
        self.activation = ACTIVATIONS[activation]()
        self.down = nn.Linear(hidden, width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def self_attend(
        self,
        x: Float[Tensor, "*tokens D"],
        mask: Bool[Tensor, "B #L L"],
        packing: Packing | None = None,
        *,
        first_only: bool = False,
    ) -> Float[Tensor, "*asking D"]:
        """Tokens read each other where the mask allows it; with `first_only` the first of each row alone, [B, 1, D]."""
        read = self.attention(self.attention_norm(x) if self.pre else x, mask, packing, first_only=first_only)
        if first_only:
            x = (x if packing is None else packing.unpack(x))[:, :1]
        return self._add(x, read, self.attention_norm)

    def cross_attend(
        self,
        x: Float[Tensor, "*tokens D"],
        memory: KeyValue,
        index: Int[Tensor, " B"] | None = None,
        packing: Packing | None = None,
    ) -> Float[Tensor, "*tokens D"]:
        """Tokens of row i read sequence `index[i]` of the memory."""
        read = self.cross.read(self.cross_norm(x) if self.pre else x, memory, index, packing)
        return self._add(x, read, self.cross_norm)

    def feed_forward(self, x: Float[Tensor, "*tokens D"]) -> Float[Tensor, "*tokens D"]:
        """The two-layer perceptron on each token alone."""
        hidden = self.up(self.feed_forward_norm(x) if self.pre else x)
        return self._add(x, self.down(self.activation(hidden)), self.feed_forward_norm)

    def forward(
        self,
        x: Float[Tensor, "*tokens D"],
        mask: Bool[Tensor, "B #L L"],
        memory: KeyValue | None = None,
        index: Int[Tensor, " B"] | None = None,
        packing: Packing | None = None,
        *,
        first_only: bool = False,
    ) -> Float[Tensor, "*asking D"]:
        """All steps in their order; cross-attention where a memory is given.

        Tokens are padded [B, L, D], or packed [P, D] with their packing. `first_only` computes the first token of each
        row alone, as a last layer may whose other tokens nobody reads: [B, 1, D].
        """
        x = self.self_attend(x, mask, packing, first_only=first_only)
        if memory is not None:
            x = self.cross_attend(x, memory, index, None if first_only else packing)
        return self.feed_forward(x)

    def _add(
        self, x: Float[Tensor, "*tokens D"], change: Float[Tensor, "*tokens D"], norm: nn.LayerNorm
    ) -> Float[Tensor, "*tokens D"]:
        """The residual; post-norm blocks normalise the sum."""
        x = x + self.dropout(change)
        return x if self.pre else norm(x)


def check_sizes(*, dropout: float, **sizes: int) -> None:
    """ValueError naming the first size that no encoder can have. Numbers of layers may be 0, other sizes begin at 1."""
    for name, size in sizes.items():
        least = 0 if name.endswith("layers") else 1
        if size < least:
            raise ValueError(f"{name} must be at least {least}, not {size}")
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, not {dropout}")


def initialise(module: nn.Module, std: float) -> None:
    """Normal weights and zero biases for linear layers and embeddings, as BERT and ViT start."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.trunc_normal_(part.weight, std=std)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.trunc_normal_(part.weight, std=std)
