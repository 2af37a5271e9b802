"""A model that knows the scenes it is asked about, in the shape of an ALBEF."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from alignfuse.api import Pipeline
from alignfuse.blocks.tokens import Text, Tokens
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.models.albef import ALBEF
from alignfuse.recipes.albef import SIZES
from alignfuse.world.captions import captions
from alignfuse.world.probes import MaskedWord
from alignfuse.world.render import render_scenes
from alignfuse.world.scenes import Scene

BLIND = -1  # the scene of an image whose tokens are masked out


class Oracle(ALBEF):
    """Fills a masked word with the last of its answers in the alphabet, calls a caption of the scene a match.

    A text with another scene, or without one, gets "a" for its masked word.
    """

    def __init__(self, scenes: Sequence[Scene], tokenizer: Tokenizer, probes: Sequence[MaskedWord]) -> None:
        small = SIZES["toy"]
        text = replace(small.text, vocab_size=tokenizer.vocab_size, layers=1, fusion_layers=1)
        super().__init__(replace(small, text=text, image=replace(small.image, layers=1)))
        self.tokenizer = tokenizer
        self.pictures = torch.from_numpy(render_scenes(scenes)).permute(0, 3, 1, 2)
        self.true = {(number, caption.text) for number, scene in enumerate(scenes) for caption in captions(scene)}
        self.answers = {}
        for probe in probes:
            words = probe.text.split()
            words[probe.position] = "[MASK]"
            self.answers[probe.scene, " ".join(words)] = max(probe.answers)

    def encode_image(self, images: Tensor) -> Tokens:
        equal = (images[:, None] == self.pictures[None]).flatten(2).all(dim=2)
        states = equal.int().argmax(dim=1).float()[:, None, None].expand(-1, 2, 1)
        return Tokens(states, torch.ones(len(images), 2, dtype=torch.bool))

    def encode_text(self, text: Text) -> Text:
        return text

    def remember(self, image: Tokens) -> Tensor:
        return image.states[:, 0, 0].masked_fill(~image.mask[:, 0], BLIND)

    def fuse(self, text: Text, memory: Tensor, image_of: Tensor | None = None, *, first_only: bool = False) -> Tokens:
        assert image_of is not None
        scene = memory[image_of][:, None].expand(text.ids.shape)
        return Tokens(torch.stack([scene, text.ids.float()], dim=2), text.mask)

    def predict(self, fused: Tokens, where: Tensor) -> Tensor:
        logits = torch.zeros(len(where), self.tokenizer.vocab_size)
        for row, place in enumerate(where.tolist()):
            scene, text = self._read(fused, place // fused.states.shape[1])
            assert fused.states.flatten(0, 1)[place, 1] == self.tokenizer.mask_id
            logits[row, self.tokenizer([self.answers.get((scene, text), "a")]).text.ids[0, 1]] = 1.0
        return logits

    def match(self, fused: Tokens) -> Tensor:
        fits = torch.tensor([self._read(fused, row) in self.true for row in range(len(fused.states))])
        return torch.stack([~fits, fits], dim=1).float()

    def _read(self, fused: Tokens, row: int) -> tuple[int, str]:
        return int(fused.states[row, 0, 0]), self.tokenizer.decode(fused.states[row, :, 1].long())


class YesSayer(Oracle):
    """Calls everything a match."""

    def match(self, fused: Tokens) -> Tensor:
        return torch.tensor([0.0, 1.0]).expand(len(fused.states), 2)


def pipeline(model: Oracle) -> Pipeline:
    """The model as it is used."""
    preprocessing = Preprocessing(image_size=model.config.image.image_size)
    return Pipeline(model, model.tokenizer, preprocessing, "oracle", torch.device("cpu"))
