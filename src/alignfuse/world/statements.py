"""Sentences about two images, true or false, as NLVR2 has them."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from alignfuse.world.scenes import COLOURS, SHAPES, SIZES, Scene

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
PATTERNS = ("striped", "dotted")
EVERY_SIGHT = {
    *(f"a {word} shape" for word in (*COLOURS, *PATTERNS)),
    *(f"a {word} {shape}" for shape in SHAPES for word in (*COLOURS, *SIZES)),
}

Pair = tuple[Scene, Scene]  # left, right


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence about two pairs of scenes: true of one, false of the other."""

    sentence: str
    pairs: tuple[Pair, Pair]
    labels: tuple[bool, bool]


def statement(first: Pair, second: Pair) -> Statement:
    """A sentence that is true of exactly one of the pairs. Raises ValueError where they look alike."""
    holds = true_sentences(*first)
    telling = sorted(holds ^ true_sentences(*second))
    if not telling:
        raise ValueError("no sentence tells these two pairs of scenes apart")
    sentence = Random(f"statement {first} {second}").choice(telling)
    return Statement(sentence, (first, second), (sentence in holds, sentence not in holds))


def statements(scenes: Sequence[Scene]) -> list[Statement]:
    """One statement for every four scenes in turn."""
    return [statement((a, b), (c, d)) for a, b, c, d in zip(*(scenes[start::4] for start in range(4)), strict=False)]


def true_sentences(left: Scene, right: Scene) -> set[str]:
    """Everything of this kind that is true of two images."""
    here, there = len(left.things), len(right.things)
    sentences = {f"there are {NUMBERS[here + there]} shapes in all"}
    if here == there:
        sentences.add("both images show the same number of shapes")
    else:
        sentences.add(f"the {'left' if here > there else 'right'} image shows more shapes")
    on_left, on_right = sights(left), sights(right)
    sentences |= {f"both images show {sight}" for sight in on_left & on_right}
    sentences |= {f"only the left image shows {sight}" for sight in on_left - on_right}
    sentences |= {f"only the right image shows {sight}" for sight in on_right - on_left}
    return sentences | {f"no image shows {sight}" for sight in EVERY_SIGHT - on_left - on_right}


def sights(scene: Scene) -> set[str]:
    """What can be seen in a scene, in two words each."""
    seen = set()
    for thing in scene.things:
        seen |= {f"a {thing.colour} shape", f"a {thing.colour} {thing.shape}", f"a {thing.size} {thing.shape}"}
        if thing.texture in PATTERNS:
            seen.add(f"a {thing.texture} shape")
    return seen
