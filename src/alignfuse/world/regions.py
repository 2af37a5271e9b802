"""What an object detector would say of a scene: boxes, class distributions, confidence, tags.

R regions, C classes (colour and shape, as in "red circle").
"""

from dataclasses import dataclass
from random import Random

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from alignfuse.world.scenes import COLOURS, SHAPES, Scene, Thing

CLASSES = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
SHIFT = 0.02  # a detected edge lies at most this share of the canvas from the true one
SURE = (0.6, 0.95)  # probability of the right class; half the rest goes to classes of its colour or shape


@dataclass(frozen=True, slots=True)
class Regions:
    """The detections in one scene, the surest first."""

    boxes: Float[ndarray, "R 4"]  # left, top, right, bottom as shares of the canvas
    classes: Float[ndarray, "R C"]  # each row sums to 1
    confidence: Float[ndarray, " R"]  # probability of the likeliest class
    tags: tuple[str, ...]  # name of the likeliest class


def detect(scene: Scene) -> Regions:
    """A region for each thing."""
    random = Random(f"regions {scene}")
    found = sorted(
        ((_distribution(random, thing), _box(random, thing)) for thing in scene.things), key=lambda d: -d[0].max()
    )
    classes = np.stack([distribution for distribution, _ in found])
    tags = tuple(CLASSES[number] for number in classes.argmax(1))
    return Regions(np.array([box for _, box in found]), classes, classes.max(1), tags)


def _box(random: Random, thing: Thing) -> list[float]:
    return [min(max(edge + random.uniform(-SHIFT, SHIFT), 0.0), 1.0) for edge in thing.box()]


def _distribution(random: Random, thing: Thing) -> Float[ndarray, " C"]:
    sure = random.uniform(*SURE)
    right = np.array([name == f"{thing.colour} {thing.shape}" for name in CLASSES])
    near = np.array([thing.colour in name or thing.shape in name for name in CLASSES]) & ~right
    shares: Float[ndarray, " C"] = sure * right + (1 - sure) / 2 * (near / near.sum() + ~right / (~right).sum())
    return shares
