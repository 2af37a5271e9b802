"""Regions are what a good but not perfect detector would say."""

import numpy as np

from alignfuse.world.regions import CLASSES, detect
from alignfuse.world.scenes import Scene


def test_each_thing_has_a_region_with_its_box_and_class(scenes: list[Scene]) -> None:
    for scene in scenes:
        regions = detect(scene)
        count = len(scene.things)
        assert regions.boxes.shape == (count, 4) and regions.classes.shape == (count, len(CLASSES))
        np.testing.assert_allclose(regions.classes.sum(1), 1, atol=1e-6)
        assert (
            np.all(np.diff(regions.confidence) <= 0) and 0.6 <= regions.confidence.min() <= regions.confidence.max() < 1
        )
        boxes = {f"{thing.colour} {thing.shape}": thing.box() for thing in scene.things}
        assert set(regions.tags) == set(boxes)
        for tag, box, row in zip(regions.tags, regions.boxes, regions.classes, strict=True):
            assert CLASSES[row.argmax()] == tag
            assert 0 < np.abs(box - boxes[tag]).max() <= 0.021
            assert box.min() >= 0 and box.max() <= 1


def test_mistakes_look_like_the_thing(scenes: list[Scene]) -> None:
    regions = detect(scenes[0])
    colour, shape = regions.tags[0].split()
    second = CLASSES[np.argsort(regions.classes[0])[-2]].split()
    assert colour in second or shape in second


def test_regions_depend_on_the_scene_alone(scenes: list[Scene]) -> None:
    np.testing.assert_array_equal(detect(scenes[3]).classes, detect(scenes[3]).classes)
    np.testing.assert_array_equal(detect(scenes[3]).boxes, detect(scenes[3]).boxes)
