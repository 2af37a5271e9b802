"""Probes judged by models whose answers are known."""

import pytest

from alignfuse.data.tokenizer import Tokenizer
from alignfuse.errors import UserError
from alignfuse.recipes.probing import guess_words, judge_pairs, paint
from alignfuse.recipes.understanding import Tally, tallied, total, understanding
from alignfuse.world.captions import captions
from alignfuse.world.probes import FoilPair, MaskedWord, masked_words, one_word_pairs
from alignfuse.world.sampling import World
from alignfuse.world.scenes import Scene
from tests.recipes.oracle import Oracle, YesSayer, pipeline

SCENES = 90


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [sample.scene for sample in World(seed=3).samples("test", SCENES)]


@pytest.fixture(scope="module")
def tokenizer(scenes: list[Scene]) -> Tokenizer:
    return Tokenizer.train([caption.text for scene in scenes for caption in captions(scene)])


def test_an_oracle_is_right_only_where_it_sees_the_scene(scenes: list[Scene], tokenizer: Tokenizer) -> None:
    found = understanding(
        pipeline(Oracle(scenes, tokenizer, masked_words(scenes, per_scene=2))), scenes, per_scene=2, pairs=120
    )
    assert [found.masked_percent(reading) for reading in ("image", "text alone", "wrong image")] == [100, 0, 0]
    assert total(found.masked["image"]).of == 2 * SCENES
    assert found.pairs == {kind: Tally(60, 60) for kind in ("colour", "relation", "shape", "size")}


def test_saying_yes_to_everything_is_chance(scenes: list[Scene], tokenizer: Tokenizer) -> None:
    pairs = one_word_pairs(scenes, 120)
    verdicts = judge_pairs(pipeline(YesSayer(scenes, tokenizer, [])), paint_for(scenes, tokenizer), pairs)
    assert set(verdicts) == {(True, False)}


def paint_for(scenes: list[Scene], tokenizer: Tokenizer):  # type: ignore[no-untyped-def]
    return paint(pipeline(Oracle(scenes, tokenizer, [])), scenes)


def test_a_synonym_is_right_and_another_word_is_not(scenes: list[Scene], tokenizer: Tokenizer) -> None:
    said = MaskedWord(0, "a big red circle", 1, "size", frozenset({"big", "large"}))
    knows = pipeline(Oracle(scenes, tokenizer, [said]))
    pixels = paint(knows, scenes)
    (guess,) = guess_words(knows, pixels, [said], top=2)
    assert guess.words[0][0] == "large"
    assert guess.right
    assert guess.words[0][1] > guess.words[1][1] > 0
    (guess,) = guess_words(knows, pixels, [MaskedWord(0, "a big red circle", 1, "size", frozenset({"big"}))])
    assert not guess.right


def test_each_pair_is_judged_with_its_own_scene(scenes: list[Scene], tokenizer: Tokenizer) -> None:
    mine, other = captions(scenes[4])[0].text, captions(scenes[7])[0].text
    knows = pipeline(Oracle(scenes, tokenizer, []))
    pairs = [FoilPair(7, "shape", other, mine), FoilPair(4, "shape", mine, other), FoilPair(7, "shape", mine, other)]
    assert judge_pairs(knows, paint(knows, scenes), pairs) == [(True, True), (True, True), (False, False)]


def test_a_word_beyond_the_longest_text_is_refused(scenes: list[Scene], tokenizer: Tokenizer) -> None:
    knows = pipeline(Oracle(scenes, tokenizer, []))
    long = MaskedWord(0, "a red circle and " * 20 + "a cross", 81, "shape", frozenset({"cross"}))
    with pytest.raises(UserError, match="longer than 40 tokens"):
        guess_words(knows, paint(knows, scenes), [long])


def test_tallies_count_by_kind() -> None:
    tallies = tallied([("size", True), ("colour", False), ("size", False), ("size", True)])
    assert tallies == {"colour": Tally(0, 1), "size": Tally(2, 3)}
    assert total(tallies).percent == 50
