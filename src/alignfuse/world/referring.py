"""Expressions that name exactly one thing of a scene, with its box, as RefCOCO has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from random import Random

from alignfuse.world.captions import ATTRIBUTES, PHRASE, WORDS
from alignfuse.world.scenes import Box, Scene, Thing, leans, relations


@dataclass(frozen=True, slots=True)
class Reference:
    """Expressions for thing number `thing` of a scene; its box is a share of the canvas (left, top, right, bottom)."""

    thing: int
    sentences: tuple[str, ...]
    box: Box


def references(scene: Scene) -> tuple[Reference, ...]:
    """For each thing up to three expressions: the shortest by its own attributes, and one by a neighbour."""
    random = Random(f"references {scene}")
    found = []
    for number, thing in enumerate(scene.things):
        own = sorted(_by_attributes(scene, thing), key=lambda kinds: (len(kinds), kinds))
        fewest = [kinds for kinds in own if len(kinds) == len(own[0])]
        sentences = [_words(random, thing, kinds) for kinds in random.sample(fewest, min(2, len(fewest)))]
        neighbours = list(_by_neighbour(random, scene, number))
        sentences += random.sample(neighbours, min(1, len(neighbours)))
        found.append(Reference(number, tuple(dict.fromkeys(sentences)), thing.box()))
    return tuple(found)


def _by_attributes(scene: Scene, thing: Thing) -> Iterator[tuple[str, ...]]:
    """Sets of attributes that no other thing shares; each has the shape."""
    for extra in range(len(ATTRIBUTES)):
        for kinds in combinations(ATTRIBUTES[:-1], extra):
            if "texture" in kinds and thing.texture == "solid":
                continue
            places = [ATTRIBUTES.index(kind) for kind in (*kinds, "shape")]
            same = [other for other in scene.things if all(other.kind[at] == thing.kind[at] for at in places)]
            if len(same) == 1:
                yield (*kinds, "shape")


def _by_neighbour(random: Random, scene: Scene, number: int) -> Iterator[str]:
    """The circle above the red square: no other circle lies on that side of it, even slightly."""
    thing = scene.things[number]
    for subject, relation, other in relations(scene):
        neighbour = scene.things[other]
        rivals = [rival for rival in scene.things if rival.shape == thing.shape and rival is not neighbour]
        if subject == number and sum(leans(rival, relation, neighbour) for rival in rivals) == 1:
            before, after = PHRASE.get(("relation", relation), ("", ""))
            words = (thing.shape, before, relation, after, "the", _words(random, neighbour, ("colour", "shape")))
            yield " ".join(word for word in words if word)


def _words(random: Random, thing: Thing, kinds: tuple[str, ...]) -> str:
    return " ".join(random.choice(WORDS[kind][thing.kind[ATTRIBUTES.index(kind)]]) for kind in kinds)
