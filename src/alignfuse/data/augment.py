"""What training does to an image: a random crop, a mirror where no caption forbids it, RandAugment."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from jaxtyping import UInt8
from torch import Tensor

from alignfuse.data.directions import names_direction
from alignfuse.data.images import resize
from alignfuse.data.randaugment import OPERATIONS, Operation, randaugment


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Defaults are ALBEF's pretraining; its fine-tuning starts the crop scale at 0.5."""

    scale: tuple[float, float] = (0.2, 1.0)  # share of the area that a crop keeps
    ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width over height of a crop
    flip: float = 0.5  # probability of mirroring
    direction_words: tuple[str, ...] = ()  # more words that forbid it, in the notation of data/directions.py
    operations: tuple[Operation, ...] = OPERATIONS
    count: int = 2  # operations drawn per image; 0 = no RandAugment
    magnitude: float = 7.0  # 0 to 10
    probability: float = 0.5  # of applying a drawn operation

    def __post_init__(self) -> None:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale must be two shares in order, above 0 and up to 1, not {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio must be two positive numbers in order, not {self.ratio}")
        if not (0 <= self.flip <= 1 and 0 <= self.probability <= 1):
            raise ValueError(f"flip and probability lie between 0 and 1, not {self.flip} and {self.probability}")
        if self.count < 0 or not 0 <= self.magnitude <= 10:
            raise ValueError(f"count must not be negative and magnitude 0 to 10, not {self.count} and {self.magnitude}")
        if self.count and not self.operations:
            raise ValueError("operations is empty; for no RandAugment set count to 0")


@dataclass(frozen=True)
class Augment:
    """A training view of an image: a function of the image, the captions beside it and the draws of `rng`."""

    config: AugmentConfig
    image_size: tuple[int, int]  # rows, columns

    def __call__(
        self, image: UInt8[Tensor, "3 H W"], rng: random.Random, captions: str | Sequence[str]
    ) -> UInt8[Tensor, "3 h w"]:
        """`captions`: the texts that must stay true of this view; one that names a side forbids mirroring."""
        config = self.config
        top, left, height, width = random_crop((image.shape[1], image.shape[2]), config.scale, config.ratio, rng)
        image = resize(image[:, top : top + height, left : left + width], self.image_size)
        captions = (captions,) if isinstance(captions, str) else captions
        if rng.random() < config.flip and not names_direction(captions, config.direction_words):
            image = image.flip(2)
        image = randaugment(
            image,
            rng,
            count=config.count,
            magnitude=config.magnitude,
            probability=config.probability,
            operations=config.operations,
        )
        return image.contiguous()


def random_crop(
    size: tuple[int, int], scale: tuple[float, float], ratio: tuple[float, float], rng: random.Random
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop of an image of `size` = (rows, columns).

    Area uniform in `scale`, log of width over height uniform in `ratio`; after ten draws that do not fit, the largest
    centred crop whose ratio is in range.
    """
    rows, columns = size
    for _ in range(10):
        area = rows * columns * rng.uniform(*scale)
        shape = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        width, height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < width <= columns and 0 < height <= rows:
            return rng.randint(0, rows - height), rng.randint(0, columns - width), height, width
    height = min(rows, max(1, round(columns / ratio[0])))
    width = min(columns, max(1, round(rows * ratio[1])))
    return (rows - height) // 2, (columns - width) // 2, height, width
