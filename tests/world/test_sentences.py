"""Statements about two images, hypotheses about one, and expressions for one thing."""

import itertools
from collections import Counter

import pytest

from alignfuse.world.captions import captions
from alignfuse.world.entailment import HIDDEN, hypotheses
from alignfuse.world.referring import references
from alignfuse.world.scenes import Scene
from alignfuse.world.statements import statement, statements, true_sentences
from tests.world.slow_reader import is_true, plain, stands


def holds(sentence: str, left: Scene, right: Scene) -> bool:
    """By reading the sentence."""
    words = sentence.split()
    numbers = [len(scene.things) for scene in (left, right)]
    if words[:2] == ["there", "are"]:
        return sum(numbers) == ["two", "three", "four", "five", "six", "seven", "eight"].index(words[2]) + 2
    if sentence.endswith("same number of shapes"):
        return numbers[0] == numbers[1]
    if sentence.endswith("more shapes"):
        return (numbers[0] > numbers[1]) if words[1] == "left" else (numbers[1] > numbers[0])
    adjective, noun = words[-2:]

    def seen(scene: Scene) -> bool:
        return any(adjective in thing.kind and noun in ("shape", thing.shape) for thing in scene.things)

    expected = {
        "both images show": (True, True),
        "only the left": (True, False),
        "only the right": (False, True),
        "no image shows": (False, False),
    }
    return (seen(left), seen(right)) == expected[" ".join(words[:3])]


def test_a_statement_is_true_of_one_pair_and_false_of_the_other(scenes: list[Scene]) -> None:
    made = statements(scenes)
    assert len(made) == len(scenes) // 4
    for number, said in enumerate(made):
        assert [scene for pair in said.pairs for scene in pair] == scenes[4 * number : 4 * number + 4]
        assert said.labels == tuple(holds(said.sentence, *pair) for pair in said.pairs)
        assert sorted(said.labels) == [False, True]
    assert 0.25 < sum(said.labels[0] for said in made) / len(made) < 0.75


def test_true_sentences_are_all_that_hold(scenes: list[Scene]) -> None:
    pairs = list(itertools.pairwise(scenes[:31]))
    offered = {sentence for left, right in pairs for sentence in true_sentences(left, right)}
    for left, right in pairs[:12]:
        assert {sentence for sentence in offered if holds(sentence, left, right)} == true_sentences(left, right)


def test_pairs_that_look_alike_have_no_statement(scenes: list[Scene]) -> None:
    with pytest.raises(ValueError, match="tells"):
        statement((scenes[0], scenes[1]), (scenes[0], scenes[1]))


def test_hypotheses_have_the_label_of_the_scene(scenes: list[Scene]) -> None:
    hidden: Counter[str] = Counter()
    for scene in scenes:
        made = hypotheses(scene)
        assert [hypothesis.label for hypothesis in made] == ["entailment", "neutral", "contradiction"]
        for hypothesis in made:
            assert hypothesis.premise in {caption.text for caption in captions(scene)}
            if any(hypothesis.sentence.endswith(ending) for ending in HIDDEN):
                colour, shape = hypothesis.sentence.split()[1:3]
                there = any((thing.colour, thing.shape) == (colour, shape) for thing in scene.things)
                assert hypothesis.label == ("neutral" if there else "contradiction")
                hidden[hypothesis.label] += 1
            else:
                judgement = is_true(hypothesis.sentence, scene, judge="lenient")
                assert hypothesis.label == ("entailment" if judgement else "contradiction")
    assert hidden["neutral"] == len(scenes)
    assert 0.3 < hidden["contradiction"] / len(scenes) < 0.7


def test_an_expression_names_one_thing(scenes: list[Scene]) -> None:
    by_neighbour = 0
    for scene in scenes:
        found = references(scene)
        assert [reference.thing for reference in found] == list(range(len(scene.things)))
        for reference in found:
            assert reference.box == scene.things[reference.thing].box()
            assert reference.sentences
            for sentence in reference.sentences:
                words = [plain(word) for word in sentence.split()]
                by_neighbour += "the" in words
                assert referents(words, scene) == [reference.thing], sentence
    assert by_neighbour > len(scenes) // 2


def referents(words: list[str], scene: Scene) -> list[int]:
    """All things that the expression fits, a relation judged leniently."""
    own, relation, neighbour = words, "", []
    for name in ("left", "right", "above", "below"):
        if name in words:
            relation = name
            own = [word for word in words[: words.index(name)] if word not in ("to", "the")]
            neighbour = words[-2:]
    return [
        number
        for number, thing in enumerate(scene.things)
        if set(own) <= set(thing.kind)
        and (
            not relation
            or any(
                set(neighbour) <= set(other.kind) and other is not thing and stands(thing, relation, other, "lenient")
                for other in scene.things
            )
        )
    ]
