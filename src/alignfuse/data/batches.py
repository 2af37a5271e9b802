"""Images and texts of a set in batches, in order, for inference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from alignfuse.blocks.tokens import Text
from alignfuse.data.images import ImageError, load_image
from alignfuse.data.preprocessing import Preprocessing
from alignfuse.data.records import ImageSource
from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError

Image = ImageSource | bytes | UInt8[Tensor, "3 H W"]  # a file, the bytes of one, or its pixels


@dataclass(frozen=True)
class ImageBatches:
    """The images at a model's size; can be read any number of times. An unreadable one is a UserError that names it."""

    images: Sequence[Image]
    preprocessing: Preprocessing
    batch_size: int = 64
    workers: int = 0

    def __iter__(self) -> Iterator[UInt8[Tensor, "_ 3 _ _"]]:
        loader = DataLoader(
            _Images(self.images, self.preprocessing),
            batch_size=self.batch_size,
            num_workers=min(self.workers, len(self.images) // self.batch_size),
            collate_fn=_stack,
        )
        for pixels, problem in loader:
            if problem is not None:
                raise UserError(problem)
            yield pixels


@dataclass(frozen=True)
class TextBatches:
    """The texts as ids; can be read any number of times."""

    texts: Sequence[str]
    tokenizer: Tokenizer
    rows: Sequence[str] | None = None  # where the texts stand, for messages
    batch_size: int = 256

    def __iter__(self) -> Iterator[Text]:
        for start in range(0, len(self.texts), self.batch_size):
            some = slice(start, start + self.batch_size)
            yield self.tokenizer(self.texts[some], rows=None if self.rows is None else self.rows[some]).text


class _Images(Dataset[Tensor | str]):
    def __init__(self, images: Sequence[Image], preprocessing: Preprocessing) -> None:
        self.images = images
        self.preprocessing = preprocessing

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Tensor | str:
        """The pixels, or what is wrong: an exception in a worker would reach the user as a traceback."""
        image = self.images[index]
        try:
            return self.preprocessing(image if isinstance(image, Tensor) else load_image(image))
        except ImageError as error:
            name = f"image {index + 1}" if isinstance(image, bytes | Tensor) else str(image)
            return f"{name}: {error.reason}"


def _stack(items: Sequence[Tensor | str]) -> tuple[Tensor | None, str | None]:
    problems = [item for item in items if isinstance(item, str)]
    if problems:
        return None, problems[0]
    return torch.stack([item for item in items if isinstance(item, Tensor)]), None


def as_source(image: str | Path | Image) -> Image:
    """A path given as text, as a path. UserError for what is no image."""
    if isinstance(image, Tensor):
        if image.dtype != torch.uint8 or image.ndim != 3 or len(image) != 3 or 0 in image.shape:
            raise UserError(f"pixels are a uint8 tensor [3, height, width], not {image.dtype} {list(image.shape)}")
    elif not isinstance(image, str | bytes | ImageSource):
        raise UserError(f"an image is a path, the bytes of a file, or its pixels, not {type(image).__name__}")
    return Path(image) if isinstance(image, str) else image
