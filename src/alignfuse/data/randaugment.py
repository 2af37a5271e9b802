"""RandAugment without colour operations, as ALBEF pretrains: captions name colours.

Strengths are those of the official code at its 256 pixels; a shift grows with the image. AutoContrast and Equalize work
on each channel, as there. On drawings and emoji with few colours Equalize moves the hue of 40 to 50% of the coloured
pixels, AutoContrast of 2 to 25%: where captions name such colours, leave them out of the operations.
"""

import random
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

Operation = Literal[
    "Identity",
    "AutoContrast",
    "Equalize",
    "Brightness",
    "Sharpness",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
]
OPERATIONS: tuple[Operation, ...] = get_args(Operation)

_GREY = (128, 128, 128)  # what comes into view at the edges


def _affine(image: Image.Image, *matrix: float) -> Image.Image:
    """Each pixel (x, y) is taken from (a x + b y + c, d x + e y + f)."""
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BILINEAR, fillcolor=_GREY
    )


# From an image and a strength between -1 and 1; the light operations take its size alone.
_FUNCTIONS: dict[Operation, Callable[[Image.Image, float], Image.Image]] = {
    "Identity": lambda image, level: image,
    "AutoContrast": lambda image, level: ImageOps.autocontrast(image),
    "Equalize": lambda image, level: ImageOps.equalize(image),
    "Brightness": lambda image, level: ImageEnhance.Brightness(image).enhance(0.1 + 1.8 * abs(level)),
    "Sharpness": lambda image, level: ImageEnhance.Sharpness(image).enhance(0.1 + 1.8 * abs(level)),
    "ShearX": lambda image, level: _affine(image, 1.0, 0.3 * level, 0.0, 0.0, 1.0, 0.0),
    "ShearY": lambda image, level: _affine(image, 1.0, 0.0, 0.0, 0.3 * level, 1.0, 0.0),
    "TranslateX": lambda image, level: _affine(image, 1.0, 0.0, 10 / 256 * image.width * level, 0.0, 1.0, 0.0),
    "TranslateY": lambda image, level: _affine(image, 1.0, 0.0, 0.0, 0.0, 1.0, 10 / 256 * image.height * level),
    "Rotate": lambda image, level: image.rotate(30 * level, Image.Resampling.BILINEAR, fillcolor=_GREY),
}


def randaugment(
    image: UInt8[Tensor, "3 H W"],
    rng: random.Random,
    *,
    count: int,
    magnitude: float,
    probability: float,
    operations: tuple[Operation, ...] = OPERATIONS,
) -> UInt8[Tensor, "3 H W"]:
    """`count` operations drawn with repetition, each applied with `probability` at `magnitude` (0 to 10).

    The sign of a geometric operation is drawn too.
    """
    draws = [(rng.choice(operations), rng.random() < probability, rng.choice((-1, 1))) for _ in range(count)]
    chosen = [(name, sign * magnitude / 10) for name, applied, sign in draws if applied and name != "Identity"]
    if not chosen:
        return image
    picture = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
    for name, level in chosen:
        picture = _FUNCTIONS[name](picture, level)
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)
