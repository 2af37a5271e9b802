"""A model whose scores are tables, with the verbs of a real one, that writes down what it is asked."""

import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text, Tokens


class DualTableModel:
    """Embeds only. Image i is a picture of the value i; text t begins with the token t + 1."""

    def __init__(self, images: Tensor, texts: Tensor) -> None:
        self.image_table = torch.nn.functional.normalize(images, dim=-1)
        self.text_table = torch.nn.functional.normalize(texts, dim=-1)
        self.images_encoded: list[int] = []
        self.texts_encoded: list[int] = []

    def encode_image(self, images: Tensor) -> Tokens:
        numbers = images[:, 0, 0, 0].long()
        self.images_encoded += numbers.tolist()
        states = numbers.float()[:, None, None].expand(-1, 5, 4).contiguous()
        return Tokens(states, torch.ones(len(images), 5, dtype=torch.bool), (2, 2), 1)

    def encode_text(self, text: Text) -> Text:
        self.texts_encoded += (text.ids[:, 0] - 1).tolist()
        return Text(text.ids, text.mask, text.ids.float()[..., None].expand(-1, -1, 3).contiguous())

    def embed_image(self, image: Tokens) -> Tensor:
        return self.image_table[image.states[:, 0, 0].long()]

    def embed_text(self, text: Text) -> Tensor:
        return self.text_table[text.ids[:, 0] - 1]

    def similarity(self, images: Tensor, texts: Tensor) -> Tensor:
        if images.ndim == 3:  # several embeddings per image: the best of them
            return torch.einsum("iqe,te->iqt", images, texts).amax(dim=1)
        return images @ texts.T


class TableModel(DualTableModel):
    """Embeds and fuses: the match logit of image i and text t is `logits[i, t]`."""

    def __init__(self, images: Tensor, texts: Tensor, logits: Tensor) -> None:
        super().__init__(images, texts)
        self.logits = logits
        self.pairs: list[tuple[int, int]] = []
        self.largest_fusion = 0  # texts

    def remember(self, image: Tokens) -> Tensor:
        return image.states[:, 0, 0].long()

    def fuse(self, text: Text, memory: Tensor, image_of: Tensor | None = None, *, first_only: bool = False) -> Tokens:
        assert text.states is not None
        assert torch.equal(text.states[..., 0], text.ids.float()) and bool((text.states[~text.mask] == 0).all())
        rows = torch.arange(len(text.ids)) if image_of is None else image_of
        pair = torch.stack([memory[rows], text.ids[:, 0] - 1], dim=1)
        self.pairs += [(int(image), int(number)) for image, number in pair]
        self.largest_fusion = max(self.largest_fusion, len(pair))
        return Tokens(pair[:, None].float(), torch.ones(len(pair), 1, dtype=torch.bool))

    def match(self, fused: Tokens) -> Tensor:
        image, text = fused.states[:, 0].long().unbind(1)
        return torch.stack([torch.zeros(len(image)), self.logits[image, text]], dim=1)


def picture_batches(count: int, size: int = 7) -> list[Tensor]:
    """Pictures of 0 ... count - 1."""
    return [part[:, None, None, None].expand(-1, 3, 2, 4).float() for part in torch.arange(count).split(size)]


def text_batches(count: int, size: int = 9) -> list[Text]:
    """Texts 0 ... count - 1, of 1 to 4 tokens, each batch padded to its longest."""
    batches = []
    for part in torch.arange(count).split(size):
        lengths = part % 4 + 1
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        batches.append(Text((part[:, None] + 1) * mask, mask))
    return batches
