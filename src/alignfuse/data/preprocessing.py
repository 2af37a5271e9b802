"""How images and texts are brought to a model outside training; stored beside its weights."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from alignfuse.config import from_dict, to_dict
from alignfuse.data.images import resize
from alignfuse.data.tokenizer import TokenizerConfig
from alignfuse.errors import reading
from alignfuse.files import replace_file

MOST_PIXELS = 8192  # of a side


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The image size and the treatment of text that a model was trained with."""

    image_size: tuple[int, int]  # rows, columns
    text: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        if not all(1 <= side <= MOST_PIXELS for side in self.image_size):
            raise ValueError(f"image_size lies between 1 and {MOST_PIXELS} pixels, not {self.image_size}")

    def __call__(self, image: UInt8[Tensor, "3 H W"]) -> UInt8[Tensor, "3 h w"]:
        """The whole image squashed to the size, as ALBEF evaluates: nothing is cut off."""
        return resize(image, self.image_size).contiguous()

    def save(self, path: Path) -> None:
        """Written as JSON."""
        text = json.dumps(to_dict(self), indent=2) + "\n"
        replace_file(path, lambda partial: partial.write_text(text, encoding="utf-8"))

    @classmethod
    def load(cls, path: Path) -> "Preprocessing":
        """Read from JSON; a file that is missing or wrong is a `UserError`."""
        with reading(path):
            return from_dict(cls, json.loads(path.read_text(encoding="utf-8")))
