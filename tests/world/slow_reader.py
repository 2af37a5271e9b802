"""An independent reader of captions: from the bare text and the boxes of the things, in loops."""

import re
from itertools import permutations

from alignfuse.world.scenes import Scene, Thing

MEANS = {"little": "small", "big": "large", "disc": "circle", "over": "above", "under": "below", "centre": "middle"}
PHRASE = re.compile(
    r"\b(?:a|the) (small|little|large|big) (red|yellow|green|blue|purple) (?:(striped|dotted) )?"
    r"(circle|disc|square|triangle|cross)\b"
)
RELATION = re.compile(r"^ (?:is )?(?:to the )?(left|right|above|over|below|under)(?: of)? $")
PLACE = re.compile(r"\b(?:on|at|in) the (left|right|top|bottom|middle|centre)\b(?! of)")
COUNT = re.compile(r"\b(one|two|three|four) shapes\b")


def is_true(text: str, scene: Scene, *, judge: str) -> bool:
    """Whether some choice of things fits; `judge`: "strict" wants boxes apart, "lenient" compares centres."""
    phrases = list(PHRASE.finditer(text))
    assert phrases, text
    between = text[phrases[0].end() : phrases[1].start()] if len(phrases) > 1 else ""
    relation, place, count = RELATION.match(between), PLACE.search(text), COUNT.search(text)
    if count and ["one", "two", "three", "four"].index(count[1]) + 1 != len(scene.things):
        return False
    for things in permutations(scene.things, len(phrases)):
        fits = all(looks_like(thing, phrase) for thing, phrase in zip(things, phrases, strict=True))
        if relation:
            fits = fits and stands(things[0], plain(relation[1]), things[1], judge)
        if place:
            fits = fits and lies(things[0], plain(place[1]))
        if fits:
            return True
    return False


def plain(word: str) -> str:
    return MEANS.get(word, word)


def looks_like(thing: Thing, phrase: "re.Match[str]") -> bool:
    size, colour, texture, shape = phrase.groups()
    said = (plain(size), colour, texture or thing.texture, plain(shape))  # "a red cross" may be striped
    return said == (thing.size, thing.colour, thing.texture, thing.shape)


def stands(first: Thing, relation: str, second: Thing, judge: str) -> bool:
    left, top, right, bottom = first.box(100)
    left_2, top_2, right_2, bottom_2 = second.box(100)
    if judge == "lenient":
        left = right = (left + right) / 2
        top = bottom = (top + bottom) / 2
        left_2 = right_2 = (left_2 + right_2) / 2
        top_2 = bottom_2 = (top_2 + bottom_2) / 2
    if relation == "left":
        return right <= left_2
    if relation == "right":
        return left >= right_2
    if relation == "above":
        return bottom <= top_2
    return top >= bottom_2


def lies(thing: Thing, place: str) -> bool:
    """In the band of a third around the middle across, and towards the edge along."""
    column = "left" if thing.x < 0.37 else "right" if thing.x > 0.63 else "middle"
    row = "top" if thing.y < 0.37 else "bottom" if thing.y > 0.63 else "middle"
    return {"middle"} == {column, row} if place == "middle" else {place, "middle"} == {column, row}
