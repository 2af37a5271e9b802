"""What is painted is what the scene says: boxes, colours, textures, at any resolution."""

import numpy as np
import pytest

from alignfuse.world.render import render, render_scenes
from alignfuse.world.sampling import PAINT, World
from alignfuse.world.scenes import COLOURS, SHAPES, Scene, Thing


def lone(shape: str, texture: str = "solid", colour: str = "red", width: float = 0.5) -> Scene:
    return Scene((Thing("large", colour, texture, shape, 0.5, 0.5, width, PAINT[colour]),), 0.9)


@pytest.mark.parametrize("image_size", [32, 48, 224])
def test_boxes_match_the_painted_pixels(image_size: int) -> None:
    for index in range(0, 60):
        scene = World().scene(index)
        for thing in scene.things:
            image = render(Scene((thing,), scene.background), image_size).astype(int)
            painted = np.abs(image - image[0, 0] if thing.box()[0] > 0.05 else image - image[-1, -1]).max(2) > 8
            rows, columns = np.flatnonzero(painted.any(1)), np.flatnonzero(painted.any(0))
            found = (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)
            assert np.abs(np.array(found) - thing.box(image_size)).max() <= 1.5 + image_size / 64, (index, thing)


def test_things_in_one_scene_are_painted_as_each_alone() -> None:
    scene = next(scene for scene in map(World().scene, range(100)) if len(scene.things) == 4)
    together = render(scene, 64)
    for thing in scene.things:
        left, top, right, bottom = (round(edge) for edge in thing.box(64))
        alone = render(Scene((thing,), scene.background), 64)
        inside = np.s_[top + 1 : bottom - 1, left + 1 : right - 1]
        np.testing.assert_array_equal(together[inside], alone[inside])


@pytest.mark.parametrize(
    ("shape", "share"),
    [("circle", np.pi / 4), ("square", 1.0), ("triangle", 0.5), ("cross", 1 - 0.64**2)],
)
def test_shapes_cover_their_area(shape: str, share: float) -> None:
    for image_size, tolerance in ((32, 0.04), (512, 0.005)):
        image = render(lone(shape), image_size).astype(float)
        covered = (image[0, 0, 2] - image[..., 2]) / (image[0, 0, 2] - 255 * PAINT["red"][2])
        assert covered.sum() / (0.5 * image_size) ** 2 == pytest.approx(share, abs=tolerance)


def test_pictures_of_one_scene_agree_across_resolutions() -> None:
    scene = World().scene(11)
    large = render(scene, 256).astype(float).reshape(32, 8, 32, 8, 3).mean((1, 3))
    assert np.abs(large - render(scene, 32)).mean() < 1.0


def test_attributes_can_be_told_apart_at_32_pixels() -> None:
    small = [render(lone(shape, width=0.28)).astype(int) for shape in SHAPES]
    textures = [render(lone("square", texture, width=0.28)).astype(int) for texture in ("solid", "striped", "dotted")]
    colours = [render(lone("square", colour=colour, width=0.28)).astype(int) for colour in COLOURS]
    for group in (small, textures, colours):
        for number, image in enumerate(group):
            for other in group[:number]:
                assert (np.abs(image - other).max(2) > 60).sum() >= 8


def test_many_scenes_are_each_as_alone() -> None:
    scenes = [World().scene(index) for index in range(5)]
    images = render_scenes(scenes, 24)
    assert images.shape == (5, 24, 24, 3) and images.dtype == np.uint8
    for scene, image in zip(scenes, images, strict=True):
        np.testing.assert_array_equal(image, render(scene, 24))
