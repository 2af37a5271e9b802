"""BERT-style text encoder and the fusion encoder that reads an image (ALBEF section 3.1).

Shapes: B texts, L tokens, D width, N images, S image tokens, M image width.
"""

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor, nn

from alignfuse.blocks.attention import KeyValue, Packing
from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.blocks.transformer import Block, check_sizes, initialise


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Sizes of a BERT-style encoder; `fusion_layers` layers with cross-attention stand on top of `layers` without."""

    vocab_size: int = 30522
    width: int = 768
    layers: int = 6
    fusion_layers: int = 6
    heads: int = 12
    hidden: int = 3072
    positions: int = 512  # longest text in tokens
    eps: float = 1e-12
    dropout: float = 0.1
    init_std: float = 0.02  # of linear weights and tables at the start; narrow models learn faster from more

    def __post_init__(self) -> None:
        check_sizes(
            layers=self.layers, dropout=self.dropout, vocab_size=self.vocab_size, fusion_layers=self.fusion_layers,
            width=self.width, heads=self.heads, hidden=self.hidden, positions=self.positions,
        )  # fmt: skip


class Memory(NamedTuple):
    """N images ready to be attended to: projected keys and values for each fusion layer."""

    layers: tuple[KeyValue, ...]

    def select(self, index: Int[Tensor, " B"]) -> "Memory":
        """The memory of the images `index`, in that order."""
        return Memory(tuple(layer.select(index) for layer in self.layers))


def post_norm_block(config: TextConfig, memory_width: int | None = None) -> Block:
    """One BERT layer of this config, with cross-attention where `memory_width` is given."""
    return Block(
        config.width,
        config.heads,
        hidden=config.hidden,
        norm="post",
        eps=config.eps,
        dropout=config.dropout,
        memory_width=memory_width,
    )


class TextEmbeddings(nn.Module):
    """Word + position + type embedding, LayerNorm, dropout."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.width)
        self.position = nn.Embedding(config.positions, config.width)
        self.token_type = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, eps=config.eps)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Int[Tensor, "B L"]) -> Float[Tensor, "B L D"]:
        """Embedded ids; all tokens are of type 0."""
        length = ids.shape[1]
        if length > self.position.num_embeddings:
            raise ValueError(f"a text of {length} tokens, but the position table has {self.position.num_embeddings}")
        x = self.word(ids) + self.position.weight[:length] + self.token_type.weight[0]
        out: Tensor = self.dropout(self.norm(x))
        return out


class TextEncoder(nn.Module):
    """Embeddings and the text-only layers."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.embeddings = TextEmbeddings(config)
        self.blocks = nn.ModuleList(post_norm_block(config) for _ in range(config.layers))
        initialise(self, config.init_std)

    def forward(self, text: Text) -> Text:
        """The text with its states filled in."""
        x = self.embeddings(text.ids)
        packing = Packing.of(text.mask)
        x = x if packing is None else packing.pack(x)
        for block in self.blocks:
            x = block(x, text.mask[:, None], packing=packing)
        return Text(text.ids, text.mask, x if packing is None else packing.unpack(x))


class FusionEncoder(nn.Module):
    """Layers that read an image: self-attention over the text, cross-attention to the image, feed-forward."""

    def __init__(self, config: TextConfig, memory_width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(post_norm_block(config, memory_width) for _ in range(config.fusion_layers))
        initialise(self, config.init_std)

    def remember(self, image: Tokens) -> Memory:
        """Keys and values of the image tokens for every layer."""
        return Memory(tuple(block.cross.remember(image.states, image.mask) for block in self.layers()))

    def layers(self) -> list[Block]:
        """The blocks in their order."""
        return [block for block in self.blocks if isinstance(block, Block)]

    def forward(
        self, text: Text, memory: Memory, image_of: Int[Tensor, " B"] | None = None, *, first_only: bool = False
    ) -> Tokens:
        """Text states after reading the images; row i reads image `image_of[i]` (without it, image i).

        `first_only`: the last layer computes the first token alone, and the result holds no other.
        """
        if text.states is None:
            raise ValueError("the text has no states yet: call encode_text first")
        if image_of is not None and len(image_of) != len(text.ids):
            raise ValueError(f"{len(text.ids)} texts but image_of names {len(image_of)} images")
        packing = Packing.of(text.mask)
        x = text.states if packing is None else packing.pack(text.states)
        blocks = self.layers()
        for block, layer in zip(blocks, memory.layers, strict=True):
            first = first_only and block is blocks[-1]
            x = block(x, text.mask[:, None], layer, image_of, packing, first_only=first)
        if first_only:
            return Tokens(x, text.mask[:, :1])
        return Tokens(x if packing is None else packing.unpack(x), text.mask)
