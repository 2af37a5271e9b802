"""The ALBEF model (Li et al. 2021, section 3.1): two encoders, and a third that fuses what they made.

Shapes: B images or texts, L tokens, E embedding width, I images, T texts, M masked places, V vocabulary.
"""

from dataclasses import dataclass, field
from typing import Literal

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor, nn

from alignfuse.blocks.grid import ImageConfig, image_encoder
from alignfuse.blocks.heads import MaskedLanguageHead, Projection
from alignfuse.blocks.text import FusionEncoder, Memory, TextConfig, TextEncoder
from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.blocks.vision import VisionConfig


@dataclass(frozen=True, kw_only=True)
class ALBEFConfig:
    """Sizes of the model; the defaults are the paper's."""

    image: ImageConfig = field(default_factory=lambda: VisionConfig(image_size=(256, 256)))
    text: TextConfig = field(default_factory=TextConfig)
    embed_dim: int = 256
    text_pooling: Literal["cls", "mean"] = "cls"  # the state that g_w reads; sentence encoders are made for the mean
    temperature: float = 0.07  # at the start; learned

    def __post_init__(self) -> None:
        if self.embed_dim < 1 or self.temperature <= 0:
            raise ValueError(f"embed_dim and temperature must be above 0, not {self.embed_dim} and {self.temperature}")
        if self.text.fusion_layers < 1:
            raise ValueError("text.fusion_layers must be at least 1: without one no text sees an image")


class ALBEF(nn.Module):
    """Image encoder, text encoder, and a fusion encoder that reads the image by cross-attention."""

    def __init__(self, config: ALBEFConfig) -> None:
        super().__init__()
        self.config = config
        width = config.text.width
        self.image_encoder = image_encoder(config.image)
        self.text_encoder = TextEncoder(config.text)
        self.fusion_encoder = FusionEncoder(config.text, self.image_encoder.width)
        self.image_projection = Projection(self.image_encoder.width, config.embed_dim)
        self.text_projection = Projection(width, config.embed_dim)
        self.match_head = nn.Linear(width, 2)
        self.mask_head = MaskedLanguageHead(width, config.text.vocab_size, eps=config.text.eps)
        self.temperature = nn.Parameter(torch.tensor(config.temperature))

    def encode_image(self, images: Num[Tensor, "B 3 H W"]) -> Tokens:
        """Image tokens, [CLS] first."""
        tokens: Tokens = self.image_encoder(images)
        return tokens

    def encode_text(self, text: Text) -> Text:
        """The text with its states."""
        encoded: Text = self.text_encoder(text)
        return encoded

    def embed_image(self, image: Tokens) -> Float[Tensor, "B E"]:
        """g_v(v_cls): unit vectors."""
        embedded: Tensor = self.image_projection(image.states[:, 0])
        return embedded

    def embed_text(self, text: Text) -> Float[Tensor, "B E"]:
        """g_w(w_cls), or g_w of the mean state: unit vectors. The text must be encoded."""
        if text.states is None:
            raise ValueError("the text has no states yet: call encode_text first")
        pooled = text.states[:, 0]
        if self.config.text_pooling == "mean":
            pooled = text.states.sum(dim=1) / text.mask.sum(dim=1, keepdim=True)  # states of padding are 0
        embedded: Tensor = self.text_projection(pooled)
        return embedded

    def similarity(self, images: Float[Tensor, "I E"], texts: Float[Tensor, "T E"]) -> Float[Tensor, "I T"]:
        """Cosine of each image with each text."""
        return images @ texts.T

    def remember(self, image: Tokens) -> Memory:
        """The images ready to be fused with any number of texts."""
        return self.fusion_encoder.remember(image)

    def fuse(
        self, text: Text, memory: Memory, image_of: Int[Tensor, " B"] | None = None, *, first_only: bool = False
    ) -> Tokens:
        """Encoded texts after reading the images; text i reads image `image_of[i]`, or image i."""
        fused: Tokens = self.fusion_encoder(text, memory, image_of, first_only=first_only)
        return fused

    def match(self, fused: Tokens) -> Float[Tensor, "B 2"]:
        """Logits: no match, match."""
        logits: Tensor = self.match_head(fused.states[:, 0])
        return logits

    def predict(self, fused: Tokens, where: Int[Tensor, " M"]) -> Float[Tensor, "M V"]:
        """Vocabulary logits at the flat places `where`."""
        logits: Tensor = self.mask_head(fused.states.flatten(0, 1)[where], self.text_encoder.embeddings.word.weight)
        return logits
