"""Pictures inside the page, as PNG in base64; small ones are shown enlarged with their pixels kept sharp."""

import base64
import io
from typing import Literal

from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from alignfuse.data.images import load_image
from alignfuse.data.records import ImageSource
from alignfuse.report.markup import Markup, tag, void

LARGEST = 192  # pixels of the longer side that are kept
SHARP = 64  # pictures up to this size are shown pixel by pixel

Mark = Literal["own", "fits", "wrong", ""]  # how a picture is framed


def picture(source: ImageSource, alt: str, *, mark: Mark = "", note: str = "") -> Markup:
    """A framed picture with a line below it."""
    pixels = load_image(source)
    image = void("img", src=data_address(pixels), alt=alt, title=alt, class_="sharp" if _small(pixels) else "smooth")
    caption = tag("figcaption", note) if note else Markup()
    return tag("figure", image, caption, class_=f"picture {mark}".strip())


def data_address(pixels: UInt8[Tensor, "3 H W"]) -> str:
    """The picture, made small, as an address that holds it."""
    image = Image.fromarray(pixels.permute(1, 2, 0).numpy())
    image.thumbnail((LARGEST, LARGEST))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


def _small(pixels: UInt8[Tensor, "3 H W"]) -> bool:
    return max(pixels.shape[1:]) <= SHARP
