"""How images and texts are brought to a model outside training; stored beside its weights."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from jaxtyping import UInt8
from torch import Tensor

from alignfuse.config import from_dict, to_dict
from alignfuse.data.images import resize
from alignfuse.data.tokenizer import TokenizerConfig
from alignfuse.errors import UserError
from alignfuse.files import replace_file


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """The image size and the treatment of text that a model was trained with."""

    image_size: tuple[int, int]  # rows, columns
    text: TokenizerConfig = field(default_factory=TokenizerConfig)

    def __post_init__(self) -> None:
        if min(self.image_size) < 1:
            raise ValueError(f"image_size must be positive, not {self.image_size}")

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
        try:
            return from_dict(cls, json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise UserError(f"{path}: {error}") from error
