"""Sentences that an image entails, contradicts or leaves open, as SNLI-VE has them."""

from dataclasses import dataclass
from random import Random

from alignfuse.world.captions import WORDS, captions
from alignfuse.world.scenes import COLOURS, SHAPES, Scene
from alignfuse.world.truth import foil

# No picture shows these: said of a thing that is there they are neutral, of one that is not a contradiction.
HIDDEN = ("is heavy", "is cheap", "is made of wood", "is made of glass", "is old", "is new")


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A sentence about a scene; the premise is one of its captions."""

    premise: str
    sentence: str
    label: str  # entailment | neutral | contradiction


def hypotheses(scene: Scene) -> tuple[Hypothesis, Hypothesis, Hypothesis]:
    """One of each label. Words alone do not give it away: half of the contradictions are worded as the neutral ones."""
    random = Random(f"hypotheses {scene}")
    premise, *others = random.sample(captions(scene), 5)
    seen = [(thing.colour, thing.shape) for thing in scene.things]
    unseen = [(colour, shape) for colour in COLOURS for shape in SHAPES if (colour, shape) not in seen]
    false = [changed for caption in others if (changed := foil(random, caption, scene, WORDS)) is not None]
    contradiction = random.choice(false).text if random.random() < 0.5 else _hidden(random, *random.choice(unseen))
    return (
        Hypothesis(premise.text, random.choice(others).text, "entailment"),
        Hypothesis(premise.text, _hidden(random, *random.choice(seen)), "neutral"),
        Hypothesis(premise.text, contradiction, "contradiction"),
    )


def _hidden(random: Random, colour: str, shape: str) -> str:
    return f"the {colour} {shape} {random.choice(HIDDEN)}"
