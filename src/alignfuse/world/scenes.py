"""What a scene holds and what is true of it: things, boxes, places, relations.

Lengths are fractions of the canvas (0-1, x to the right, y down); boxes in pixels are (left, top, right, bottom).
"""

from dataclasses import dataclass

SIZES = ("small", "large")
COLOURS = ("red", "yellow", "green", "blue", "purple")
SHAPES = ("circle", "square", "triangle", "cross")
OPPOSITE = {"left": "right", "right": "left", "above": "below", "below": "above"}
RELATIONS = tuple(OPPOSITE)

Box = tuple[float, float, float, float]
Kind = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Thing:
    """One object: its attributes, its centre and width, the colour it is painted with (0-1)."""

    size: str
    colour: str
    texture: str
    shape: str
    x: float
    y: float
    width: float  # every shape fills a square of this side
    rgb: tuple[float, float, float]

    @property
    def kind(self) -> Kind:
        """What words can say of it."""
        return self.size, self.colour, self.texture, self.shape

    def box(self, image_size: int = 1) -> Box:
        """Box in pixels of a square image of that side."""
        half = self.width / 2
        left, top, right, bottom = self.x - half, self.y - half, self.x + half, self.y + half
        return left * image_size, top * image_size, right * image_size, bottom * image_size


@dataclass(frozen=True, slots=True)
class Scene:
    """Things that do not overlap and differ pairwise in colour or shape, on a plain grey background (0-1)."""

    things: tuple[Thing, ...]
    background: float


def stands(first: Thing, relation: str, second: Thing) -> bool:
    """Whether the first thing is clearly left of, right of, above or below the second: the boxes are apart that way."""
    if relation in ("right", "below"):
        return stands(second, OPPOSITE[relation], first)
    low, high = (first.x, second.x) if relation == "left" else (first.y, second.y)
    return low + first.width / 2 <= high - second.width / 2


def leans(first: Thing, relation: str, second: Thing) -> bool:
    """Whether a lenient judge could say so: the centre lies on that side, however little."""
    if relation in ("right", "below"):
        return leans(second, OPPOSITE[relation], first)
    return first.x < second.x if relation == "left" else first.y < second.y


def relations(scene: Scene) -> list[tuple[int, str, int]]:
    """All clear relations of two things: (subject, left | right | above | below, object), by number in the scene."""
    numbers = range(len(scene.things))
    return [
        (a, relation, b)
        for a in numbers
        for b in numbers
        for relation in RELATIONS
        if a != b and stands(scene.things[a], relation, scene.things[b])
    ]


def place(thing: Thing) -> str | None:
    """Where on the canvas a thing stands: left, right, top, bottom, middle, or None where no one word says it."""
    across, down = thing.x - 0.5, thing.y - 0.5
    if max(abs(across), abs(down)) <= 0.08:
        return "middle"
    if abs(across) >= 0.14 and abs(down) <= 0.08:
        return "left" if across < 0 else "right"
    if abs(down) >= 0.14 and abs(across) <= 0.08:
        return "top" if down < 0 else "bottom"
    return None


def facts(scene: Scene) -> tuple[object, ...]:
    """All that words can say of a scene, in one order: two scenes with equal facts share every true caption."""
    if len(scene.things) == 1:
        return (scene.things[0].kind, place(scene.things[0]))
    order = sorted(range(len(scene.things)), key=lambda number: scene.things[number].kind)
    rank = {number: position for position, number in enumerate(order)}
    between = [(rank[a], name, rank[b]) for a, name, b in relations(scene) if name in ("left", "above")]
    return (*(scene.things[number].kind for number in order), *sorted(between))
