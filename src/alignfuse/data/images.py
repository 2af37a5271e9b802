"""Pixels of an image file: bytes from a path or a tar, decoded upright, as 8-bit sRGB on white.

Shapes: H and W rows and columns of pixels.
"""

import functools
import importlib
from io import BytesIO
from types import ModuleType

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from alignfuse.data.colour import srgb_transform, to_srgb
from alignfuse.data.records import ImageSource, TarMember
from alignfuse.errors import UserError

ORIENTATION = 0x0112  # EXIF tag
_TURNED, _FROM_RIGHT, _FROM_BELOW = (5, 6, 7, 8), (2, 3, 6, 7), (3, 4, 7, 8)  # EXIF orientations


class ImageError(UserError):
    """An image that cannot be used: which one, and why."""

    def __init__(self, source: object, reason: str) -> None:
        super().__init__(source, reason)
        self.source = source
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.source}: {self.reason}"


def load_image(source: ImageSource | bytes) -> UInt8[Tensor, "3 H W"]:
    """The picture as a viewer shows it, in sRGB: first frame, upright, transparency on white.

    JPEGs in grey or sRGB are decoded by simplejpeg where it is installed, everything else by Pillow; the pixels are the
    same. A file that is missing, damaged, no image, or larger than Pillow's limit against decompression bombs is an
    `ImageError`.
    """
    name, data = ("image given as bytes", source) if isinstance(source, bytes) else (source, _read(source))
    try:
        return _decode(data)
    except UnidentifiedImageError:
        raise ImageError(name, _no_image(data)) from None
    except Image.DecompressionBombError as error:
        raise ImageError(name, f"too large: {error}") from None
    except Exception as error:  # what Pillow raises on damaged files depends on the format
        raise ImageError(name, f"cannot be decoded: {error or type(error).__name__}") from error


def from_pillow(image: Image.Image) -> UInt8[Tensor, "3 H W"]:
    """The pixels of an opened Pillow image of any mode, treated like a file."""
    pixels = np.array(to_srgb(image))  # before the orientation is asked for: Pillow turns a TIFF itself while loading
    return _upright(pixels, _orientation(image))


def resize(image: UInt8[Tensor, "3 H W"], size: tuple[int, int]) -> UInt8[Tensor, "3 h w"]:
    """The image at `size` = (rows, columns), by antialiased bicubic interpolation."""
    if image.shape[1:] == size:
        return image
    return F.interpolate(image[None], size, mode="bicubic", antialias=True)[0]


def _read(source: ImageSource) -> bytes:
    """The bytes of a source. Opened anew each time, so that forked and spawned workers share no file position."""
    path, start, size = (source.path, source.offset, source.size) if isinstance(source, TarMember) else (source, 0, -1)
    try:
        with open(path, "rb") as file:
            file.seek(start)
            data = file.read(size)
    except OSError as error:
        raise ImageError(source, (error.strerror or str(error)).lower()) from None
    except ValueError as error:  # no name of a file at all: it holds a NUL, or half of a surrogate pair
        raise ImageError(source, f"no name of a file: {error}") from None
    if len(data) < size:
        raise ImageError(source, f"the archive ends after {len(data)} of its {size} bytes")
    return data


def _decode(data: bytes) -> UInt8[Tensor, "3 H W"]:
    with Image.open(BytesIO(data)) as image:
        if image.format == "EPS":
            raise ValueError("a PostScript program; convert it to PNG")  # Pillow would run Ghostscript on it
        pixels = _decode_jpeg(data, image)
        return from_pillow(image) if pixels is None else _upright(pixels, _orientation(image))


@functools.cache
def _simplejpeg() -> ModuleType | None:
    """The fast decoder where it is installed; without it the same pixels come from Pillow."""
    try:
        return importlib.import_module("simplejpeg")
    except ImportError:
        return None


def _decode_jpeg(data: bytes, image: Image.Image) -> UInt8[np.ndarray, "H W 3"] | None:
    """The pixels of a plain JPEG in half of Pillow's time; None where Pillow has to do it.

    That is: another format, four inks, colours that need converting, or damage, of which Pillow is the judge.
    """
    decoder = _simplejpeg()
    if decoder is None or image.format not in ("JPEG", "MPO") or image.mode not in ("L", "RGB"):
        return None
    profile = image.info.get("icc_profile")
    if profile and srgb_transform(profile, image.mode):
        return None
    try:
        pixels: np.ndarray = decoder.decode_jpeg(data, "RGB")
    except ValueError:
        return None
    return pixels


def _orientation(image: Image.Image) -> object:
    """The EXIF orientation; 1 (upright) where the EXIF data is absent or damaged."""
    try:
        return image.getexif().get(ORIENTATION, 1)
    except Exception:  # a viewer shows such an image all the same
        return 1


def _upright(pixels: UInt8[np.ndarray, "rows columns 3"], orientation: object) -> UInt8[Tensor, "3 H W"]:
    """The pixels as a tensor, turned and mirrored as EXIF says."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    if orientation in _TURNED:
        image = image.transpose(1, 2)
    axes = [axis for axis, where in ((2, _FROM_RIGHT), (1, _FROM_BELOW)) if orientation in where]
    return image.flip(axes) if axes else image


def _no_image(data: bytes) -> str:
    """Why Pillow does not know a file."""
    if not data:
        return "the file is empty (0 bytes)"
    if data[4:11] in (b"ftyphei", b"ftyphev", b"ftypmif", b"ftypmsf"):
        return "a HEIC picture, which Pillow cannot read; convert it to JPEG"
    start = data[:40].decode("utf-8", errors="ignore").strip()
    if start.isprintable() and len(start) > 3:
        return f"not an image: it begins with the text {start!r}"
    return "not an image in a format that Pillow reads, or its beginning is damaged"
