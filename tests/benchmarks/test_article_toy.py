"""The toy experiment: its captions and pictures are what the article describes, its measures what they are called."""

import dataclasses
import json

import pytest
import torch

from alignfuse.models.albef import ALBEF
from benchmarks import article_toy as toy


def test_each_caption_has_six_neighbours() -> None:
    """One other size, two other colours, three other shapes."""
    near = toy.neighbours()
    assert len(toy.CAPTIONS) == 24 and (near.sum(1) == 6).all() and (near == near.T).all()


def test_pictures_tell_the_captions_apart() -> None:
    shapes = toy.silhouettes()
    same = (shapes[:, None] == shapes[None]).flatten(2).all(2)
    size_and_shape = [(size, shape) for size, _, shape in toy.CAPTIONS]
    assert same.tolist() == [[one == other for other in size_and_shape] for one in size_and_shape]
    random = torch.Generator().manual_seed(0)
    one, other = (toy.draw(torch.tensor([5]), random).images for _ in range(2))
    assert one.shape == (1, 3, 16, 16) and not torch.equal(one, other)


def test_an_untrained_model_is_at_chance() -> None:
    torch.manual_seed(0)
    model = ALBEF(toy.MODEL).eval()
    pictures = toy.draw(torch.arange(24).repeat(8), torch.Generator().manual_seed(1))
    near, uniform, loss = toy.contrast(model, pictures, torch.Generator().manual_seed(2))
    assert near == pytest.approx(6 / 23, abs=0.08) and uniform == pytest.approx(6 / 23, abs=0.05)
    assert loss == pytest.approx(2.079, abs=0.6)  # ln 8
    assert toy.one_word_accuracy(model, pictures) == pytest.approx(0.5, abs=0.1)
    assert toy.masked_words(model, pictures) < 0.45


def test_a_seed_is_measured_from_end_to_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toy, "STEPS", {"align": 3, "match": 3, "words": 3})
    monkeypatch.setattr(toy, "TESTS", 1)
    with pytest.raises(SystemExit) as ended:
        toy.main(["--seeds", "3,5", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert [row["seed"] for row in found["seeds"]] == [3, 5]
    assert (
        ended.value.code == 1 and not found["checks"]["median masked words with image in the published range or better"]
    )


GOOD = toy.Figures(
    seed=0, near_mass=0.65, near_mass_uniform=0.25, itc_loss=0.3, itm_random=0.75, itm_mined=0.95,
    words_without_image=0.35, words_with_image=0.99,
)  # fmt: skip


@pytest.mark.parametrize(
    "worse",
    [
        {"near_mass": 0.45},
        {"itm_mined": 0.7},
        {"itm_random": 0.6},
        {"itc_loss": 0.5},
        {"words_with_image": 0.9},
        {"words_without_image": 0.5},
    ],
)
def test_a_figure_outside_its_range_fails(worse: dict[str, float]) -> None:
    assert all(toy.checks([GOOD]).values())
    assert not all(toy.checks([dataclasses.replace(GOOD, **worse)]).values())


def test_a_range_of_seeds() -> None:
    assert toy.numbers("0-2,7") == [0, 1, 2, 7]
