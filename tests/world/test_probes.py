"""Masked words have the right answers; foils differ in one word and are false of every choice of things."""

from collections import Counter

import pytest

from alignfuse.errors import UserError
from alignfuse.world.captions import WORDS, captions
from alignfuse.world.probes import FOIL_KINDS, MASKED_KINDS, FoilPair, MaskedWord, masked_words, one_word_pairs
from alignfuse.world.scenes import Scene
from tests.world.slow_reader import is_true, plain

EVERY_WORD = {kind: {text for texts in values.values() for text in texts} for kind, values in WORDS.items()}


@pytest.fixture(scope="module")
def probes(scenes: list[Scene]) -> list[MaskedWord]:
    return masked_words(scenes, per_scene=4)


@pytest.fixture(scope="module")
def pairs(scenes: list[Scene]) -> list[FoilPair]:
    return one_word_pairs(scenes, 402)


def test_answers_are_the_words_that_make_the_caption_true(scenes: list[Scene], probes: list[MaskedWord]) -> None:
    assert len(probes) == 4 * len(scenes)
    for probe in probes:
        words = probe.text.split()
        shown = words[probe.position]
        assert shown in probe.answers and shown in EVERY_WORD[probe.kind]
        for text in EVERY_WORD[probe.kind]:
            sideways = {"left", "right"}
            if probe.kind == "relation" and (text in sideways) != (shown in sideways):
                assert text not in probe.answers  # "to the above of" is no English
                continue
            changed = " ".join([*words[: probe.position], text, *words[probe.position + 1 :]])
            assert (text in probe.answers) == is_true(changed, scenes[probe.scene], judge="strict"), changed
    assert {len(probe.answers) for probe in probes if probe.kind == "size"} == {2}


def test_probes_cover_every_kind_once_each(scenes: list[Scene], probes: list[MaskedWord]) -> None:
    assert len({(probe.scene, probe.text, probe.position) for probe in probes}) == len(probes)
    counts = Counter(probe.kind for probe in probes)
    assert set(counts) == set(MASKED_KINDS) and min(counts.values()) > 40
    assert masked_words(scenes[:10], per_scene=4) == probes[:40]
    assert masked_words(scenes[:10], per_scene=4, seed=1) != probes[:40]
    many = masked_words(scenes[:3], per_scene=100)
    assert Counter(probe.scene for probe in many) == {
        number: sum(word.kind in MASKED_KINDS for caption in captions(scene) for word in caption.words)
        for number, scene in enumerate(scenes[:3])
    }


def test_other_words_of_the_caption_do_not_decide_the_masked_one(probes: list[MaskedWord]) -> None:
    """Among the scenes every answer of a kind comes up, and none is nearly always right."""
    for kind in MASKED_KINDS:
        meanings = Counter(plain(min(probe.answers, key=len)) for probe in probes if probe.kind == kind)
        assert max(meanings.values()) / sum(meanings.values()) < 0.65, (kind, meanings)


def test_foils_are_false_and_differ_in_one_word_of_their_kind(scenes: list[Scene], pairs: list[FoilPair]) -> None:
    assert Counter(pair.kind for pair in pairs) == {"size": 101, "colour": 101, "shape": 100, "relation": 100}
    assert len({(pair.scene, pair.caption, pair.foil) for pair in pairs}) == 402
    for pair in pairs:
        true, false = pair.caption.split(), pair.foil.split()
        changed = [(a, b) for a, b in zip(true, false, strict=True) if a != b]
        assert len(changed) == 1 and set(changed[0]) <= EVERY_WORD[pair.kind]
        scene = scenes[pair.scene]
        assert pair.caption in {caption.text for caption in captions(scene)}
        assert is_true(pair.caption, scene, judge="strict")
        assert not is_true(pair.foil, scene, judge="strict")
        assert not is_true(pair.foil, scene, judge="lenient"), (pair.foil, scene)
    assert set(FOIL_KINDS) == {pair.kind for pair in pairs}


def test_foils_spread_over_the_scenes(scenes: list[Scene], pairs: list[FoilPair]) -> None:
    for kind in ("size", "colour", "shape"):
        assert len({pair.scene for pair in pairs if pair.kind == kind}) >= 100
    related = sum(len(scene.things) > 1 for scene in scenes)
    assert len({pair.scene for pair in pairs if pair.kind == "relation"}) == min(related, 100)


def test_words_alone_do_not_tell_foils_from_captions(pairs: list[FoilPair]) -> None:
    in_true = Counter(word for pair in pairs for word in pair.caption.split())
    in_false = Counter(word for pair in pairs for word in pair.foil.split())
    for word in in_true:
        assert abs(in_true[word] - in_false[word]) < 0.25 * in_true[word] + 10, word


def test_too_few_scenes_for_the_pairs_asked_for(scenes: list[Scene]) -> None:
    with pytest.raises(UserError, match="take more scenes"):
        one_word_pairs(scenes[:10], 2000)
