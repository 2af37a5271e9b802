"""Captions are true, five, and say which scene is meant."""

from collections import Counter, defaultdict
from dataclasses import replace
from itertools import permutations

from alignfuse.world.captions import Caption, Word, captions
from alignfuse.world.sampling import World
from alignfuse.world.scenes import Scene, facts
from alignfuse.world.truth import alternatives, same_grammar, true_of
from tests.world.slow_reader import is_true


def test_every_caption_is_true_by_an_independent_reader(scenes: list[Scene]) -> None:
    for scene in scenes:
        written = captions(scene)
        assert len({caption.text for caption in written}) == 5
        for caption in written:
            assert is_true(caption.text, scene, judge="strict"), caption.text
            assert true_of(caption, scene)


def test_the_judge_agrees_with_the_independent_reader_on_other_scenes(scenes: list[Scene]) -> None:
    verdicts = Counter()
    near = [scene for scene in map(World(things=(0.2, 0.8)).scene, range(800)) if scene.things[0].colour == "red"]
    for scene in scenes[:15]:
        for caption in captions(scene):
            for other in near[:40]:
                verdict = true_of(caption, other)
                assert verdict == is_true(caption.text, other, judge="strict"), (caption.text, other)
                verdicts[verdict] += 1
    for scene in scenes:  # changed words: many are true of nothing, synonyms of the right one stay true
        caption = captions(scene)[0]
        for position, word in enumerate(caption.words):
            for text in same_grammar(word) if word.kind else []:
                changed = caption.with_word(position, text)
                verdict = true_of(changed, scene)
                assert verdict == is_true(changed.text, scene, judge="strict"), (changed.text, scene)
                verdicts[verdict] += 1
    assert min(verdicts[True], verdicts[False]) > 500


def test_captions_of_one_or_two_things_belong_to_their_facts_alone(scenes: list[Scene]) -> None:
    """Among scenes of as many things, and but for textures: what is called a red cross may also be a striped one."""

    def untextured(scene: Scene) -> object:
        return facts(Scene(tuple(replace(thing, texture="solid") for thing in scene.things), scene.background))

    fitting = [
        (scene, caption, [other for other in scenes if len(other.things) == count and true_of(caption, other)])
        for count in (1, 2)
        for scene in [scene for scene in scenes if len(scene.things) == count][:12]
        for caption in captions(scene)
    ]
    for scene, caption, found in fitting:
        assert {untextured(other) for other in found} == {untextured(scene)}, caption.text
    assert sum(len(found) == 1 for _, _, found in fitting) > 0.9 * len(fitting)


def test_equal_facts_give_equal_captions() -> None:
    world = World(things=(1.0,))
    by_facts = defaultdict(list)
    for index in range(400):
        scene = world.scene(index)
        by_facts[facts(scene)].append(scene)
    twins = [group for group in by_facts.values() if len(group) > 1]
    assert len(twins) > 10
    for first, second, *_ in twins:
        assert first != second and captions(first) == captions(second)


def test_captions_do_not_depend_on_the_order_of_things(scenes: list[Scene]) -> None:
    for scene in scenes[:25]:
        assert all(
            captions(Scene(things, scene.background)) == captions(scene) for things in permutations(scene.things)
        )


def test_the_vocabulary_is_small_and_used() -> None:
    counts = Counter(
        word for index in range(250) for caption in captions(World().scene(index)) for word in caption.text.split()
    )
    assert 40 <= len(counts) <= 100
    assert min(counts.values()) > 10


def test_words_of_one_grammar() -> None:
    left, above = Word("left", "relation"), Word("over", "relation")
    assert same_grammar(left) == ["left", "right"]
    assert same_grammar(above) == ["above", "over", "below", "under"]
    assert alternatives(above) == ["below", "under"]
    assert alternatives(Word("big", "size")) == ["small", "little"]
    assert alternatives(Word("disc", "shape")) == ["square", "triangle", "cross"]
    assert Caption((Word("a"), Word("big", "size"))).with_word(1, "small").text == "a small"
