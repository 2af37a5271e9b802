"""Scene i is a function of (seed, i) alone; things never overlap; splits never meet."""

from collections import Counter
from itertools import combinations, permutations

from alignfuse.world.sampling import World
from alignfuse.world.scenes import RELATIONS, Scene, facts, place, relations
from tests.world.slow_reader import lies, stands


def test_a_scene_depends_on_seed_and_index_alone() -> None:
    world = World(seed=3)
    forward = [world.scene(index) for index in range(20)]
    backward = [World(seed=3).scene(index) for index in reversed(range(20))]
    assert forward == backward[::-1]
    assert all(World(seed=4).scene(index) != scene for index, scene in enumerate(forward))
    assert len({facts(scene) for scene in forward}) > 15


def test_weights_choose_the_number_of_things() -> None:
    assert {len(World(things=(0.0, 1.0)).scene(index).things) for index in range(50)} == {2}
    counts = Counter(len(World().scene(index).things) for index in range(500))
    assert set(counts) == {1, 2, 3, 4} and counts[2] > counts[3] > 20


def test_things_lie_on_the_canvas_apart_and_named_by_colour_and_shape(scenes: list[Scene]) -> None:
    for scene in scenes:
        for thing in scene.things:
            left, top, right, bottom = thing.box(32)
            assert -1e-6 <= left < right <= 32 + 1e-6 and -1e-6 <= top < bottom <= 32 + 1e-6
            assert 8 <= right - left <= 23
            assert (right - left < 12) == (thing.size == "small")
        for one, other in combinations(scene.things, 2):
            assert any(stands(one, relation, other, "strict") for relation in RELATIONS)
            assert (one.colour, one.shape) != (other.colour, other.shape)


def test_relations_are_those_of_the_boxes(scenes: list[Scene]) -> None:
    for scene in scenes:
        slow = {
            (a, relation, b)
            for a, b in permutations(range(len(scene.things)), 2)
            for relation in RELATIONS
            if stands(scene.things[a], relation, scene.things[b], "strict")
        }
        assert set(relations(scene)) == slow and len(relations(scene)) == len(slow)


def test_two_things_stand_in_one_relation_and_a_lone_one_has_one_place(scenes: list[Scene]) -> None:
    for scene in scenes:
        if len(scene.things) == 2:
            assert len(relations(scene)) == 2  # the relation and its opposite
        if len(scene.things) == 1:
            where = place(scene.things[0])
            assert where is not None and lies(scene.things[0], where)
    assert {place(scene.things[0]) for scene in scenes if len(scene.things) == 1} > {"left", "right", "top", "bottom"}


def test_splits_share_no_scene_and_held_out_facts_differ() -> None:
    world = World()
    samples = {split: world.samples(split, 400) for split in ("train", "val", "test")}
    indices = [sample.index for members in samples.values() for sample in members]
    assert len(set(indices)) == 1200
    assert [sample.index for sample in samples["train"]] == list(range(400))
    for split in ("val", "test"):
        assert len({facts(sample.scene) for sample in samples[split]}) == 400
        assert samples[split][:100] == world.samples(split, 100)
    assert all(world.scene(sample.index) == sample.scene for members in samples.values() for sample in members)


def test_facts_do_not_depend_on_the_order_of_things(scenes: list[Scene]) -> None:
    for scene in scenes:
        for things in permutations(scene.things):
            assert facts(Scene(things, scene.background)) == facts(scene)
