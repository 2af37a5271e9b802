"""Whether a caption is true of a scene, and captions near it that are not."""

from collections.abc import Callable, Collection
from itertools import permutations
from random import Random

from alignfuse.world.captions import ATTRIBUTES, PHRASE, VALUE, WORDS, Caption, Word
from alignfuse.world.scenes import Scene, Thing, leans, place, stands

Holds = Callable[[Thing, str, Thing], bool]


def true_of(caption: Caption, scene: Scene, holds: Holds = stands) -> bool:
    """Whether distinct things of the scene fit all that the caption claims; `holds` judges relations."""
    claims = [(word.kind, VALUE[word.kind, word.text], word.mention) for word in caption.words if word.kind]
    mentions = 1 + max(mention for _, _, mention in claims)
    return any(
        all(_claim_holds(kind, value, things[mention], things, scene, holds) for kind, value, mention in claims)
        for things in permutations(scene.things, mentions)
    )


def _claim_holds(kind: str, value: str, thing: Thing, things: tuple[Thing, ...], scene: Scene, holds: Holds) -> bool:
    if kind == "relation":
        return holds(things[0], value, things[1])
    if kind == "place":
        return place(thing) == value
    if kind == "count":
        return len(scene.things) == int(value)
    return thing.kind[ATTRIBUTES.index(kind)] == value


def same_grammar(word: Word) -> list[str]:
    """Words of its kind that could stand in its place: "to the left of", "to the right of", but "above"."""
    kind, phrase = word.kind, PHRASE.get((word.kind, VALUE[word.kind, word.text]))
    return [text for value, texts in WORDS[kind].items() if PHRASE.get((kind, value)) == phrase for text in texts]


def alternatives(word: Word) -> list[str]:
    """Words that could stand in its place and say something else."""
    return [text for text in same_grammar(word) if VALUE[word.kind, text] != VALUE[word.kind, word.text]]


def foil(random: Random, caption: Caption, scene: Scene, kinds: Collection[str]) -> Caption | None:
    """The caption with one word of these kinds changed so that it is false; None where no change makes it so.

    False means that no choice of things in the scene fits it, even when relations are judged leniently.
    """
    places = [position for position, word in enumerate(caption.words) if word.kind in kinds]
    for position in random.sample(places, len(places)):
        others = alternatives(caption.words[position])
        for text in random.sample(others, len(others)):
            changed = caption.with_word(position, text)
            if not true_of(changed, scene, leans):
                return changed
    return None
