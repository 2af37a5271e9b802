"""Questions about a scene, each with the right answer and ten annotators' answers, as VQA v2 has them."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from alignfuse.world.captions import ATTRIBUTES, WORDS, Caption, captions
from alignfuse.world.scenes import COLOURS, SHAPES, SIZES, Scene, Thing
from alignfuse.world.truth import foil

PLURAL = {"circle": "circles", "square": "squares", "triangle": "triangles", "cross": "crosses"}
NUMBERS = ("0", "1", "2", "3", "4")
RIVALS = {"number": NUMBERS, "yes/no": ("yes", "no"), "colour": COLOURS, "shape": SHAPES, "size": SIZES}
MISTAKEN = 0.08  # share of annotators who answer something else, three of ten at most
SYNONYM = 0.3  # share who take any of the words for their answer


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its right answer; most of the ten answers are right, some by a synonym, a few are wrong."""

    text: str
    answer: str
    answers: tuple[str, ...]
    kind: str  # number | yes/no | colour | shape | size


def questions(scene: Scene) -> tuple[Question, ...]:
    """A count, a yes, a no, and one question for colour, shape and size where the scene has one thing to ask for."""
    random = Random(f"questions {scene}")
    asked = [_count(random, scene), _yes(random, scene), _no(random, scene)]
    asked += [
        (kind, *random.choice(found)) for kind in ("colour", "shape", "size") if (found := list(_what(scene, kind)))
    ]
    return tuple(Question(text, answer, _annotators(random, kind, answer), kind) for kind, text, answer in asked)


def possible_answers() -> list[str]:
    """Every answer that an annotator may give."""
    return sorted({word for kind in RIVALS for value in RIVALS[kind] for word in _synonyms(kind, value)})


def _count(random: Random, scene: Scene) -> tuple[str, str, str]:
    asked = {
        "shapes": len(scene.things),
        **{f"{colour} shapes": sum(thing.colour == colour for thing in scene.things) for colour in COLOURS},
        **{PLURAL[shape]: sum(thing.shape == shape for thing in scene.things) for shape in SHAPES},
    }
    seen = [name for name, number in asked.items() if number]
    name = random.choice(seen if random.random() < 0.8 else list(asked))
    return "number", f"how many {name} are there", str(asked[name])


def _yes(random: Random, scene: Scene) -> tuple[str, str, str]:
    return "yes/no", _ask(random.choice(_statements(scene)).text), "yes"


def _no(random: Random, scene: Scene) -> tuple[str, str, str]:
    """A caption with one word wrong."""
    foils = [foil(random, caption, scene, WORDS) for caption in _statements(scene)]
    return "yes/no", _ask(random.choice([changed for changed in foils if changed is not None]).text), "no"


def _statements(scene: Scene) -> list[Caption]:
    """The captions that a question can be made of."""
    return [
        caption
        for caption in captions(scene)
        if caption.text.split()[0] in ("a", "the") and "picture" not in caption.text
    ]


def _ask(statement: str) -> str:
    """the cross is on the left -> is the cross on the left; a cross on the left -> is there a cross on the left."""
    words = statement.split()
    if "is" not in words:
        return f"is there {statement}"
    words.remove("is")
    return " ".join(["is", *words])


def _what(scene: Scene, kind: str) -> Iterator[tuple[str, str]]:
    """Questions for one attribute of a thing that the other words name alone."""
    for thing in scene.things:
        if kind == "shape" and _alone(scene, thing, "colour"):
            yield f"what shape is the {thing.colour} thing", thing.shape
        if kind == "colour" and _alone(scene, thing, "shape"):
            yield f"what colour is the {thing.shape}", thing.colour
        if kind == "size":
            yield f"what size is the {thing.colour} {thing.shape}", thing.size


def _alone(scene: Scene, thing: Thing, kind: str) -> bool:
    """Whether no other thing has the same colour or shape."""
    attribute = ATTRIBUTES.index(kind)
    return sum(other.kind[attribute] == thing.kind[attribute] for other in scene.things) == 1


def _synonyms(kind: str, answer: str) -> tuple[str, ...]:
    return WORDS.get(kind, {}).get(answer, (answer,))


def _annotators(random: Random, kind: str, answer: str) -> tuple[str, ...]:
    rivals = [rival for rival in RIVALS[kind] if rival != answer]
    mistaken = [random.random() < MISTAKEN for _ in range(10)]
    given = [random.choice(rivals) if wrong else answer for wrong in mistaken]
    given = given if sum(mistaken) <= 3 else [answer] * 10
    return tuple(random.choice(_synonyms(kind, text)) if random.random() < SYNONYM else text for text in given)
