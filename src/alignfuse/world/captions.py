"""Five paraphrases of a scene.

A caption keeps, beside its text, what each word claims: a colour, size, texture or shape of the things it mentions, the
relation of the first thing to the second, the place of a lone thing, the number of things. Scenes with equal facts get
equal captions, so that a caption that fits two images fully stands under both.
"""

from dataclasses import dataclass, replace
from itertools import permutations
from random import Random
from typing import NamedTuple

from alignfuse.world.scenes import COLOURS, Scene, Thing, facts, place, relations

# kind of claim -> value -> the words for it, the commonest first
WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "size": {"small": ("small", "little"), "large": ("large", "big")},
    "colour": {colour: (colour,) for colour in COLOURS},
    "texture": {"solid": (), "striped": ("striped",), "dotted": ("dotted",)},
    "shape": {
        "circle": ("circle", "disc"),
        "square": ("square",),
        "triangle": ("triangle",),
        "cross": ("cross",),
    },
    "relation": {"left": ("left",), "right": ("right",), "above": ("above", "over"), "below": ("below", "under")},
    "place": {
        "left": ("left",),
        "right": ("right",),
        "top": ("top",),
        "bottom": ("bottom",),
        "middle": ("middle", "centre"),
    },
    "count": {"1": ("one",), "2": ("two",), "3": ("three",), "4": ("four",)},
}
ATTRIBUTES = ("size", "colour", "texture", "shape")
VALUE = {(kind, word): value for kind, values in WORDS.items() for value, words in values.items() for word in words}

# a0 = "a small red circle", the0 = "the small red circle", of thing 0 ...; relation and place expand to their phrases
ALONE = ("a0 place", "there is a0 place", "the0 is place", "a picture of a0 place", "place there is a0")
PAIR = (
    "a0 relation a1",
    "there is a0 relation a1",
    "the0 is relation the1",
    "a picture of a0 relation a1",
    "a0 is relation a1",
)
MANY = (
    "{list}",
    "there are {list}",
    "a picture of {list}",
    "{count} shapes with a0 relation a1",
    "there are {count} shapes and the0 is relation the1",
)
PHRASE = {  # what stands before and after the word
    ("relation", "left"): ("to the", "of"),
    ("relation", "right"): ("to the", "of"),
    ("place", "left"): ("on the", ""),
    ("place", "right"): ("on the", ""),
    ("place", "top"): ("at the", ""),
    ("place", "bottom"): ("at the", ""),
    ("place", "middle"): ("in the", ""),
}


class Word(NamedTuple):
    """A word and what it claims: of a mentioned thing (0, 1 ...), or nothing (kind "")."""

    text: str
    kind: str = ""
    mention: int = 0


@dataclass(frozen=True, slots=True)
class Caption:
    """A sentence about a scene."""

    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """As it is read: words with a space between."""
        return " ".join(word.text for word in self.words)

    def with_word(self, position: int, text: str) -> "Caption":
        """The caption with one word exchanged for another of its kind."""
        words = list(self.words)
        words[position] = words[position]._replace(text=text)
        return replace(self, words=tuple(words))


def captions(scene: Scene) -> tuple[Caption, ...]:
    """Five different true captions, a function of the facts alone; of 1 or 2 things each names all but solid."""
    random = Random(f"captions {facts(scene)}")
    templates = {1: ALONE, 2: PAIR}.get(len(scene.things), MANY)
    return tuple(_write(random, scene, template) for template in random.sample(templates, len(templates)))


def _write(random: Random, scene: Scene, template: str) -> Caption:
    """Fill a template; things are mentioned in an order of their own in each caption."""
    ranked = sorted(range(len(scene.things)), key=lambda number: scene.things[number].kind)
    order, relation = random.sample(ranked, len(ranked)), ""
    if "relation" in template:
        known = {(a, b): name for a, name, b in relations(scene)}  # above or below where left or right holds too
        subject, other = random.choice([pair for pair in permutations(ranked, 2) if pair in known])
        relation = known[subject, other]
        order = [subject, other]
    return Caption(tuple(_expand(random, scene, template, order, relation)))


def _expand(random: Random, scene: Scene, template: str, order: list[int], relation: str) -> list[Word]:
    every = " and ".join(f"a{mention}" for mention in range(len(order)))
    words: list[Word] = []
    for slot in template.replace("{list}", every).split():
        if slot in ("relation", "place"):
            value = relation or place(scene.things[0]) or "middle"
            before, after = PHRASE.get((slot, value), ("", ""))
            words += [*_plain(before), _say(random, slot, value), *_plain(after)]
        elif slot == "{count}":
            words.append(_say(random, "count", str(len(scene.things))))
        elif slot[-1].isdigit():
            mention = int(slot[-1])
            words += [Word(slot[:-1]), *_name(random, scene.things[order[mention]], mention)]
        else:
            words.append(Word(slot))
    return words


def _plain(text: str) -> list[Word]:
    return [Word(word) for word in text.split()]


def _say(random: Random, kind: str, value: str, mention: int = 0) -> Word:
    return Word(random.choice(WORDS[kind][value]), kind, mention)


def _name(random: Random, thing: Thing, mention: int) -> list[Word]:
    """small red striped circle; that a thing is solid goes without saying."""
    values = zip(ATTRIBUTES, thing.kind, strict=True)
    return [_say(random, kind, value, mention) for kind, value in values if WORDS[kind][value]]
