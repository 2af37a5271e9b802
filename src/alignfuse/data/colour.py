"""Any mode of a Pillow image as 8-bit sRGB on white: bit depth, inks, colour profile, transparency."""

import functools
import logging
from io import BytesIO

import numpy as np
from PIL import Image, ImageChops, ImageCms

logger = logging.getLogger(__name__)


def to_srgb(image: Image.Image) -> Image.Image:
    """The image in mode RGB: its colour profile applied, transparent places white, deep values scaled to 8 bit."""
    profile = image.info.get("icc_profile")
    if image.mode.startswith("I") or image.mode == "F":
        image = _to_8_bit(image)
    elif image.format == "JPEG" and image.mode == "CMYK" and "adobe" not in image.info:
        image = ImageChops.invert(image)  # Pillow takes every such file as inverted; without Adobe's mark it is not
    if not image.has_transparency_data:
        return _colours(image, profile)
    colours = "L" if image.mode in ("1", "L", "LA", "La") else "RGB"
    image = image.convert(f"{colours}A")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(_colours(image.convert(colours), profile), mask=image.getchannel("A"))
    return canvas


@functools.lru_cache(maxsize=64)
def srgb_transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """From an ICC profile to sRGB for images of `mode`.

    None where there is nothing to do: the profile is sRGB, damaged, or of another mode than the image. As viewers do,
    the pixels are then taken as sRGB.
    """
    try:
        source = ImageCms.getOpenProfile(BytesIO(profile))
        if mode == "RGB" and ImageCms.getProfileDescription(source).startswith("sRGB"):
            return None
        return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError):
        return None


def _colours(image: Image.Image, profile: bytes | None) -> Image.Image:
    """An 8-bit image without transparency in mode RGB."""
    if image.mode == "1":
        image = image.convert("L")
    elif image.mode not in ("L", "RGB", "CMYK"):
        image = image.convert("RGB")
    transform = srgb_transform(profile, image.mode) if profile else None
    return image.convert("RGB") if transform is None else transform.apply(image)


def _to_8_bit(image: Image.Image) -> Image.Image:
    """A 16-bit, 32-bit or float grey image in mode L: scaled, never clipped.

    White is the largest value of the type: 65535 for 16 bits. The wide types do not say what is white there: it is the
    least of 1 (floats), 255 and 65535 that no value exceeds. Values that are negative or still larger are
    stretched from their minimum to their maximum.
    """
    values = np.asarray(image).astype(np.float32)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    if image.mode.startswith("I;16") or (image.mode, image.format) == ("I", "PPM"):
        whites: tuple[float, ...] = (65535,)
    else:
        whites = (1, 255, 65535) if image.mode == "F" else (255, 65535)
    white = next((white for white in whites if low >= 0 and high <= white), None)
    if white is None:
        values, white = values - low, max(high - low, 1e-30)
    if white == 65535 and 255 < high < 4096:
        _warn_of_dim_images()
    return Image.fromarray(np.rint(values * (255 / white)).astype(np.uint8))


@functools.cache
def _warn_of_dim_images() -> None:
    """Once: 12-bit values in a 16-bit file, as medical exports hold them, come out almost black."""
    logger.warning(
        "a 16-bit image holds no value above 4095 of 65535 and comes out almost black; "
        "if such files hold 12-bit values, multiply them by 16 before"
    )
