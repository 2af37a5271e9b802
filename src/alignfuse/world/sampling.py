"""Drawing scenes: scene i of a world is a function of (seed, i) alone.

Small things are 9-11 pixels wide on a canvas of 32, large ones 14-19: a convolution sees their form.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from alignfuse.world.scenes import COLOURS, SHAPES, SIZES, Scene, Thing, facts

WIDTHS = {"small": (0.29, 0.34), "large": (0.44, 0.48)}
LARGE_ALONE = (0.47, 0.60)
GAP = 0.03  # between two things, along the way they are apart
TEXTURE_WEIGHTS = {"solid": 0.6, "striped": 0.2, "dotted": 0.2}
PAINT = {
    "red": (0.88, 0.10, 0.12),
    "yellow": (0.98, 0.87, 0.10),
    "green": (0.10, 0.62, 0.20),
    "blue": (0.12, 0.30, 0.90),
    "purple": (0.60, 0.15, 0.68),
}
PAINT_JITTER = 0.06
BACKGROUND = (0.80, 0.95)

# The splits of one world are ranges of indices that never meet.
FIRST_INDEX = {"train": 0, "val": 1_000_000_000, "test": 2_000_000_000}


@dataclass(frozen=True, slots=True)
class Sample:
    """A scene and where it stands in its world."""

    split: str
    index: int
    scene: Scene

    @property
    def id(self) -> str:
        """Name of the scene in exported files: train-000012."""
        return f"{self.split}-{self.index - FIRST_INDEX[self.split]:06d}"


@dataclass(frozen=True, kw_only=True)
class World:
    """A seed and how often a scene holds 1, 2, 3 and 4 things."""

    seed: int = 0
    things: tuple[float, ...] = (0.3, 0.5, 0.12, 0.08)

    def scene(self, index: int) -> Scene:
        """Scene `index`, the same whatever was drawn before."""
        random = Random(f"scene {self.seed} {index}")
        count = random.choices(range(1, len(self.things) + 1), self.things)[0]
        things = _kinds(random, count)
        place = {1: _place_alone, 2: _place_two}.get(count, _place_in_quarters)
        return Scene(tuple(place(random, things)), random.uniform(*BACKGROUND))

    def samples(self, split: str, count: int) -> list[Sample]:
        """The first `count` scenes of train; of val and test the first `count` with pairwise different facts."""
        drawn = (Sample(split, index, self.scene(index)) for index in itertools.count(FIRST_INDEX[split]))
        return list(itertools.islice(drawn if split == "train" else _distinct(drawn), count))


def _distinct(samples: Iterator[Sample]) -> Iterator[Sample]:
    """Without the scenes whose facts an earlier one has."""
    seen = set()
    for sample in samples:
        if (key := facts(sample.scene)) not in seen:
            seen.add(key)
            yield sample


def _kinds(random: Random, count: int) -> list[Thing]:
    """Things without a place, pairwise different in colour or shape: both words together name one of them.

    Small things are solid: at a few pixels no stripe or dot can be told.
    """
    looks = random.sample([(colour, shape) for colour in COLOURS for shape in SHAPES], count)
    things = []
    for colour, shape in looks:
        size = random.choice(SIZES)
        texture = (
            "solid" if size == "small" else random.choices(list(TEXTURE_WEIGHTS), list(TEXTURE_WEIGHTS.values()))[0]
        )
        width = random.uniform(*(LARGE_ALONE if count == 1 and size == "large" else WIDTHS[size]))
        red, green, blue = (part + random.uniform(-PAINT_JITTER, PAINT_JITTER) for part in PAINT[colour])
        things.append(Thing(size, colour, texture, shape, 0.5, 0.5, width, (red, green, blue)))
    return things


def _at(thing: Thing, x: float, y: float) -> Thing:
    """The thing at a place, moved no further than the canvas allows."""
    low, high = thing.width / 2, 1 - thing.width / 2
    x, y = min(max(x, low), high), min(max(y, low), high)
    return Thing(thing.size, thing.colour, thing.texture, thing.shape, x, y, thing.width, thing.rgb)


def _place_alone(random: Random, things: list[Thing]) -> list[Thing]:
    """In the middle, or close to the middle of one side."""
    side = random.choice(("left", "right", "top", "bottom", "middle"))
    along = things[0].width / 2 + random.uniform(0, 0.05)
    across = 0.5 + random.uniform(-0.07, 0.07)
    if side == "middle":
        along = 0.5 + random.uniform(-0.07, 0.07)
    if side in ("right", "bottom"):
        along = 1 - along
    x, y = (along, across) if side in ("left", "right") else (across, along)
    return [_at(things[0], x, y)]


def _place_two(random: Random, things: list[Thing]) -> list[Thing]:
    """Apart along one axis, and about level along the other: one relation holds, and no other."""
    first, second = things
    slack = 1 - first.width - second.width - GAP
    low = first.width / 2 + slack * random.uniform(0, 0.5)
    high = 1 - second.width / 2 - slack * random.uniform(0, 0.5)
    level = random.uniform(0.3, 0.7)
    level_first, level_second = (level + random.uniform(-0.08, 0.08) for _ in things)
    if random.random() < 0.5:
        return [_at(first, low, level_first), _at(second, high, level_second)]
    return [_at(first, level_first, low), _at(second, level_second, high)]


def _place_in_quarters(random: Random, things: list[Thing]) -> list[Thing]:
    """Three or four things, each in a quarter of its own."""
    quarters = random.sample([(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)], len(things))
    placed = []
    for thing, (x, y) in zip(things, quarters, strict=True):
        room = max(0.0, 0.25 - GAP / 2 - thing.width / 2)
        placed.append(_at(thing, x + random.uniform(-room, room), y + random.uniform(-room, room)))
    return placed
