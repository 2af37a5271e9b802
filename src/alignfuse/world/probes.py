"""Two tests of understanding: masked words that only the picture decides, and captions with one word wrong."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from random import Random

from alignfuse.errors import UserError
from alignfuse.world.captions import Caption, captions
from alignfuse.world.scenes import Scene
from alignfuse.world.truth import foil, same_grammar, true_of

MASKED_KINDS = ("size", "colour", "texture", "shape", "relation")
FOIL_KINDS = ("size", "colour", "shape", "relation")


@dataclass(frozen=True, slots=True)
class MaskedWord:
    """A word to guess: `text.split()[position]` of the caption of scene number `scene`."""

    scene: int
    text: str
    position: int
    kind: str
    answers: frozenset[str]  # every word that fits there and makes the caption true: synonyms too


@dataclass(frozen=True, slots=True)
class FoilPair:
    """A true caption of scene number `scene` and the same with one word changed, false of all things in the scene."""

    scene: int
    kind: str
    caption: str
    foil: str


def masked_words(scenes: Sequence[Scene], *, per_scene: int = 1, seed: int = 0) -> list[MaskedWord]:
    """Of each scene `per_scene` different places of its five captions, drawn evenly over the kinds that they hold."""
    probes = []
    for number, scene in enumerate(scenes):
        random = Random(f"masked {seed} {number}")
        places = _places(scene)
        for _ in range(min(per_scene, sum(map(len, places.values())))):
            kind = random.choice([kind for kind, members in places.items() if members])
            caption, position = places[kind].pop(random.randrange(len(places[kind])))
            fitting = same_grammar(caption.words[position])
            answers = {text for text in fitting if true_of(caption.with_word(position, text), scene)}
            probes.append(MaskedWord(number, caption.text, position, kind, frozenset(answers)))
    return probes


def one_word_pairs(scenes: Sequence[Scene], count: int = 2000, *, seed: int = 0) -> list[FoilPair]:
    """`count` pairs, equally many of each kind of `FOIL_KINDS`, scenes in turn. Raises UserError for too few scenes.

    A foil is kept only if no choice of things in the scene makes it true, a relation judged leniently.
    """
    written = [captions(scene) for scene in scenes]
    pairs: list[FoilPair] = []
    for place, kind in enumerate(FOIL_KINDS):
        share = count // len(FOIL_KINDS) + (place < count % len(FOIL_KINDS))
        random = Random(f"foils {seed} {kind}")
        made = [_foils(random, number, scene, written[number], kind) for number, scene in enumerate(scenes)]
        in_turn = [pair for turn in zip_longest(*made) for pair in turn if pair is not None]
        if len(in_turn) < share:
            missing = f"{len(scenes)} scenes give {len(in_turn)} {kind} pairs, {share} are asked for"
            raise UserError(f"{missing}: take more scenes")
        pairs += in_turn[:share]
    return pairs


def _places(scene: Scene) -> dict[str, list[tuple[Caption, int]]]:
    """Captions and places of the words that only the picture decides, by kind."""
    found: dict[str, list[tuple[Caption, int]]] = {kind: [] for kind in MASKED_KINDS}
    for caption in captions(scene):
        for position, word in enumerate(caption.words):
            if word.kind in found:
                found[word.kind].append((caption, position))
    return found


def _foils(random: Random, number: int, scene: Scene, written: Sequence[Caption], kind: str) -> list[FoilPair]:
    """At most one foil of each caption, in random order."""
    made = [(caption, foil(random, caption, scene, [kind])) for caption in written]
    pairs = [FoilPair(number, kind, caption.text, changed.text) for caption, changed in made if changed is not None]
    return random.sample(pairs, len(pairs))
