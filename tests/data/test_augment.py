"""Augmentation: official strengths, every draw from the generator, captions stay true."""

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from alignfuse.config import from_dict, to_dict
from alignfuse.data.augment import Augment, AugmentConfig, random_crop
from alignfuse.data.directions import names_direction
from alignfuse.data.images import resize
from alignfuse.data.randaugment import OPERATIONS, Operation, randaugment
from alignfuse.errors import UserError

PLAIN = AugmentConfig(scale=(1.0, 1.0), ratio=(1.0, 1.0), count=0)


def half_white(size: int = 64) -> Tensor:
    """Black with a white right half."""
    image = torch.zeros(3, size, size, dtype=torch.uint8)
    image[:, :, size // 2 :] = 255
    return image


def texture(rows: int = 48, columns: int = 48) -> Tensor:
    return torch.randint(0, 256, (3, rows, columns), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def apply(name: Operation, image: Tensor, magnitude: float = 7.0) -> tuple[Tensor, Tensor]:
    """The operation with either sign of the strength."""
    signs = {}
    for seed in range(20):
        rng, same = random.Random(seed), random.Random(seed)
        out = randaugment(image, rng, count=1, magnitude=magnitude, probability=1.0, operations=(name,))
        same.choice((name,)), same.random()
        signs[same.choice((-1, 1))] = out
    return signs[-1], signs[1]


# --- the crop -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [(0.2, 1.0), (0.5, 1.0)])
def test_crops_lie_inside_with_area_and_ratio_in_range(scale: tuple[float, float]) -> None:
    rng = random.Random(0)
    shares, ratios = [], []
    for _ in range(2000):
        top, left, height, width = random_crop((300, 400), scale, (3 / 4, 4 / 3), rng)
        assert top >= 0 and left >= 0 and top + height <= 300 and left + width <= 400
        shares.append(height * width / 120000)
        ratios.append(width / height)
    assert scale[0] - 0.01 <= min(shares) < scale[0] + 0.02 and 0.9 < max(shares) <= 1
    assert 0.74 < min(ratios) < 0.8 and 1.25 < max(ratios) < 1.35


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1, 1000), (0, 499, 1, 1)),
        ((1000, 30), (480, 0, 40, 30)),
        ((30, 1000), (0, 480, 30, 40)),
        ((1, 1), (0, 0, 1, 1)),
    ],
)
def test_where_no_crop_fits_the_middle_is_taken(size: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert random_crop(size, (1.0, 1.0), (3 / 4, 4 / 3), random.Random(0)) == expected


def test_the_whole_view_is_the_resized_crop() -> None:
    image = texture(60, 80)
    config = AugmentConfig(flip=0.0, count=0)
    view = Augment(config, (24, 32))(image, random.Random(5), "a dog")
    top, left, height, width = random_crop((60, 80), config.scale, config.ratio, random.Random(5))
    assert torch.equal(view, resize(image[:, top : top + height, left : left + width], (24, 32)))
    assert view.shape == (3, 24, 32) and view.dtype == torch.uint8 and view.is_contiguous()


def test_a_view_is_a_function_of_the_generator() -> None:
    image, augment = texture(), Augment(AugmentConfig(), (32, 32))
    views = [augment(image, random.Random(seed), "a dog") for seed in (1, 1, 2)]
    assert torch.equal(views[0], views[1]) and not torch.equal(views[0], views[2])


def test_a_caption_does_not_shift_later_draws() -> None:
    augment = Augment(AugmentConfig(flip=1.0), (32, 32))
    for seed in range(10):
        rngs = [random.Random(seed), random.Random(seed)]
        for rng, caption in zip(rngs, ("a dog", "a dog on the left"), strict=True):
            augment(texture(), rng, caption)
        assert rngs[0].random() == rngs[1].random()


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2)])
def test_any_shape_of_image(size: tuple[int, int]) -> None:
    for seed in range(20):
        assert Augment(AugmentConfig(), (16, 16))(texture(*size), random.Random(seed), "x").shape == (3, 16, 16)


# --- mirroring ------------------------------------------------------------------------------------------------------


def flips(caption: str | list[str], config: AugmentConfig = PLAIN, tries: int = 60) -> int:
    augment, image = Augment(config, (64, 64)), half_white()
    return sum(bool(augment(image, random.Random(seed), caption)[0, 0, 0] == 255) for seed in range(tries))


def test_half_of_the_views_are_mirrored() -> None:
    assert 15 < flips("a dog beside a cat") < 45


@pytest.mark.parametrize(
    "caption",
    [
        "a dog left of a cat",
        "A dog to the RIGHT of a cat.",
        "a left-handed pitcher",
        "the rightmost chair",
        "top-left corner",
        "a wheel turning clockwise",
        "the church stands north-east of the river",
        "a clock showing three o'clock",
        "three o\u2019clock",
        "waxing crescent moon",
        "a sign that says stop",
        "The letter b.",
        "map of Italy",
        "RUL opacity",
        "ein Hund links neben einer Katze",
        "der rechte Fuß",
        "un chien à gauche",
        "un perro a la izquierda",
        "um cão à direita",
        "un cane a destra",
        "собака слева от кошки",
        "Левый глаз.",
        "pies po prawej stronie",
        "sağdaki köpek",
        "hunden til venstre",
        "hunden till ho\u0308ger",  # decomposed
        "左边有一只狗",
        "右の犬",
        "왼쪽에 있는 개",
        "الكلب على اليسار",
        "बाएँ हाथ",
        "หมาอยู่ทางซ้าย",
        "כלב משמאל לחתול",
        "con chó bên trái",
    ],
)
def test_captions_that_name_a_side_are_never_mirrored(caption: str) -> None:
    assert flips(caption) == 0


@pytest.mark.parametrize(
    "caption", ["a bright lamp", "an upright piano", "a feast", "a vest", "a chair", "ein Hund", "un chien", "собака"]
)
def test_other_captions_are(caption: str) -> None:
    assert flips(caption) > 0


def test_every_caption_of_an_image_counts() -> None:
    assert flips(["a dog and a cat", "a cat on the right"]) == 0
    assert flips(["a dog and a cat", "two animals"]) > 0


def test_more_words_can_be_named() -> None:
    config = AugmentConfig(scale=(1.0, 1.0), ratio=(1.0, 1.0), count=0, direction_words=("Port*", "*bord"))
    assert flips("a ship seen from portside", config) == flips("an backbord", config) == 0
    assert flips("a report", config) > 0
    assert flips("a dog on the left", config) == 0


def test_real_captions_with_a_side_in_many_languages(shared: Path) -> None:
    """What the translators made of "Left eye." and "Right eye."."""
    rows = [json.loads(line) for line in (shared / "data/stamps/captions.jsonl").read_text("utf-8").splitlines()]
    eyes = [row["captions"] for row in rows if row["caption"] in ("Left eye.", "Right eye.")]
    missed = {language for captions in eyes for language, text in captions.items() if not names_direction([text])}
    assert len(eyes) == 2
    assert missed <= {"ach", "ff", "iu", "son", "el"}  # unlisted, and a Greek "red eye"
    letters = [row["caption"] for row in rows if row["caption"].startswith("The letter ")]
    assert len(letters) > 100 and all(names_direction([letter]) for letter in letters)
    others = [row["caption"] for row in rows if row["caption"].startswith(("A ", "An "))]
    assert sum(names_direction([caption]) for caption in others) < 0.03 * len(others)


# --- RandAugment ----------------------------------------------------------------------------------------------------


def test_operations_are_drawn_evenly_and_applied_half_the_time() -> None:
    image, changed, drawn = texture(), 0, Counter[str]()
    for seed in range(600):
        out = randaugment(image, random.Random(seed), count=1, magnitude=7.0, probability=0.5)
        changed += not torch.equal(out, image)
        drawn[random.Random(seed).choice(OPERATIONS)] += 1
    assert set(drawn) == set(OPERATIONS) and max(drawn.values()) < 2 * min(drawn.values())
    assert 0.5 * 0.8 * 0.8 < changed / 600 < 0.5  # one operation of ten changes nothing; contrast is full already


def test_nothing_is_done_at_probability_zero_and_by_identity() -> None:
    image = texture()
    assert torch.equal(randaugment(image, random.Random(0), count=5, magnitude=7.0, probability=0.0), image)
    assert torch.equal(apply("Identity", image)[0], image)


def test_brightness_and_sharpness_have_the_official_strength() -> None:
    """At magnitude 7 the factor is 0.7 x 1.8 + 0.1 = 1.36; at 5 it is 1, which changes nothing."""
    flat = torch.full((3, 8, 8), 100, dtype=torch.uint8)
    assert apply("Brightness", flat)[0].unique().tolist() == [136]
    dot = flat.clone()
    dot[:, 4, 4] = 120  # the smoothed value is (5 x 120 + 8 x 100) / 13 = 107.7
    assert int(apply("Sharpness", dot)[0][0, 4, 4]) == round(107.7 + 1.36 * (120 - 107.7))
    for name in ("Brightness", "Sharpness"):
        assert torch.equal(apply(name, dot, magnitude=5.0)[1], dot)


def test_autocontrast_and_equalize() -> None:
    image = torch.zeros(3, 1, 4, dtype=torch.uint8)
    image[:] = torch.tensor([50, 100, 100, 150], dtype=torch.uint8)
    assert apply("AutoContrast", image)[0][0, 0].tolist() == [0, 127, 127, 255]
    # Shares of 1/2, 1/4, 1/4: each level goes to the share of pixels below it, the last to white.
    levels = torch.tensor([10] * 510 + [20] * 255 + [30] * 255, dtype=torch.uint8).expand(3, 1, 1020).contiguous()
    assert apply("Equalize", levels)[0].unique().tolist() == [0, 170, 255]


def test_shifts_shears_and_turns_have_the_official_size() -> None:
    """At 256 pixels and magnitude 7: 7 pixels, 0.21 pixels a row, 21 degrees; grey comes into view."""
    image = torch.full((3, 256, 256), 255, dtype=torch.uint8)
    for name, grey_columns in (("TranslateX", 7), ("TranslateY", 0)):
        for moved in apply(name, image):
            assert int((moved[0, 128] == 128).sum()) == grey_columns
    for name in ("ShearX", "ShearY"):
        line = apply(name, image)[0][0]
        last = line[-1] if name == "ShearX" else line[:, -1]
        assert abs(int((last == 128).sum()) - 0.21 * 255.5) <= 1
    bar = torch.zeros(3, 256, 256, dtype=torch.uint8)
    bar[:, 126:130] = 255
    for turned, sign in zip(apply("Rotate", bar), (-1, 1), strict=True):
        heights = [float((turned[0, :, x] == 255).nonzero().float().mean()) for x in (78, 178)]
        assert np.degrees(np.arctan2(heights[0] - heights[1], 100)) == pytest.approx(21 * sign, abs=1)


def test_shifts_grow_with_the_image() -> None:
    small = torch.full((3, 32, 32), 255, dtype=torch.uint8)
    assert int((apply("TranslateX", small)[0][0, 16] != 255).sum()) == 1  # 7 / 256 of 32 = 0.9


def test_signs_are_drawn() -> None:
    for name in ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"):
        one, other = apply(name, half_white())
        assert not torch.equal(one, other)


def test_operations_work_on_an_opened_photo_of_one_pixel() -> None:
    pixel = torch.from_numpy(np.array(Image.new("RGB", (1, 1), "red"))).permute(2, 0, 1)
    for name in OPERATIONS:
        assert apply(name, pixel)[0].shape == (3, 1, 1)


# --- the config -----------------------------------------------------------------------------------------------------


def test_config_round_trips() -> None:
    config = AugmentConfig(scale=(0.5, 1.0), operations=("Rotate", "Identity"), direction_words=("port",))
    assert from_dict(AugmentConfig, to_dict(config)) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scale", (0.5, 0.2)),
        ("scale", (0.0, 1.0)),
        ("ratio", (2.0, 1.0)),
        ("flip", 1.5),
        ("probability", -0.1),
        ("count", -1),
        ("magnitude", 11.0),
        ("operations", ()),
        ("operations", ("Colour",)),
    ],
)
def test_impossible_settings_are_named(name: str, value: object) -> None:
    with pytest.raises(UserError, match=name):
        from_dict(AugmentConfig, {name: value})
