"""Painting a scene at any resolution, anti-aliased.

A shape is a signed distance to its outline (negative inside); the share of a pixel that it covers is that distance in
pixels, clipped. N scenes, S pixels a side.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray

from alignfuse.world.scenes import Scene, Thing

Across = Float[ndarray, "1 S"]
Down = Float[ndarray, "S 1"]
Grid = Float[ndarray, "S S"]
Image = UInt8[ndarray, "S S 3"]

CROSS_ARM = 0.36  # half thickness of an arm over half the width of the cross
MARK_PERIOD = 4.5 / 32  # of stripes and dots, over the canvas
DOT_RADIUS = 0.3  # over the period
MARK_SHADE = 0.35  # stripes and dots are darker than their thing, so that its outline stays whole


def _circle(x: Across, y: Down) -> Grid:
    distance: Grid = np.hypot(x, y) - 1
    return distance


def _square(x: Across, y: Down) -> Grid:
    distance: Grid = np.maximum(abs(x), abs(y)) - 1
    return distance


def _triangle(x: Across, y: Down) -> Grid:
    """Point up, as high as wide."""
    distance: Grid = np.maximum((2 * abs(x) - y - 1) / np.sqrt(5.0), y - 1)
    return distance


def _cross(x: Across, y: Down) -> Grid:
    across, down = abs(x), abs(y)
    distance: Grid = np.maximum(np.maximum(across, down) - 1, np.minimum(across, down) - CROSS_ARM)
    return distance


SHAPE: dict[str, Callable[[Across, Down], Grid]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "cross": _cross,
}


def _marks(texture: str, x: Across, y: Down) -> Grid:
    """Signed distance, in periods, to stripes or dots; x and y are distances from the thing's centre in periods."""
    if texture == "striped":
        return np.broadcast_to(abs(y % 1 - 0.5) - 0.25, (y.size, x.size))
    distance: Grid = np.hypot((x + 0.5 * (np.floor(y) % 2)) % 1 - 0.5, y % 1 - 0.5) - DOT_RADIUS
    return distance


def _cover(distance: Grid, pixels: float) -> Grid:
    """Share of each pixel that is inside; `pixels` = length of one unit of distance."""
    share: Grid = np.clip(0.5 - distance * pixels, 0, 1)
    return share


def _paint(canvas: Float[ndarray, "S S 3"], thing: Thing) -> None:
    """Lay one thing over the canvas."""
    side = len(canvas)
    half = thing.width / 2
    centres = (np.arange(side, dtype=np.float32) + 0.5) / side
    across, down = (centres - thing.x)[None, :], (centres - thing.y)[:, None]
    paint = np.array(thing.rgb, np.float32)
    if thing.texture != "solid":
        marked = _cover(_marks(thing.texture, across / MARK_PERIOD, down / MARK_PERIOD), MARK_PERIOD * side)
        paint = (paint * (1 - marked[..., None] * (1 - MARK_SHADE))).astype(np.float32)
    covered = _cover(SHAPE[thing.shape](across / half, down / half), half * side)
    canvas += covered[..., None] * (paint - canvas)


def render(scene: Scene, image_size: int = 32) -> Image:
    """The scene as RGB pixels 0-255 of a square image."""
    canvas = np.full((image_size, image_size, 3), scene.background, np.float32)
    for thing in scene.things:
        _paint(canvas, thing)
    return (np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8)


def render_scenes(scenes: Sequence[Scene], image_size: int = 32) -> UInt8[ndarray, "N S S 3"]:
    """All scenes in one array."""
    images = np.empty((len(scenes), image_size, image_size, 3), np.uint8)
    for number, scene in enumerate(scenes):
        images[number] = render(scene, image_size)
    return images
