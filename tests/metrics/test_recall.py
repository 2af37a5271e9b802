"""Recall both ways: hand-computed numbers, the official procedure's numbers, and the tie rule."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from alignfuse.metrics.ordering import best, order_keys, unpack
from alignfuse.metrics.recall import image_to_text_ranks, recall, recall_both_ways, text_to_image_ranks

FIVE_EACH = torch.arange(2).repeat_interleave(5)


def test_any_own_caption_counts() -> None:
    """Two images, five captions each. Image 0: its third caption is best (hit at 1). Image 1: three foreign captions
    are ahead of its best (rank 3). Texts: four of ten have their image first."""
    scores = torch.tensor(
        [
            [0.1, 0.2, 0.9, 0.3, 0.4, 0.8, 0.0, 0.5, 0.6, 0.7],
            [0.0, 0.8, 0.85, 0.7, 0.1, 0.6, 0.5, 0.4, 0.3, 0.2],
        ]
    )
    assert image_to_text_ranks(scores, FIVE_EACH).tolist() == [0, 3]
    result = recall_both_ways(scores, scores.T, FIVE_EACH)
    # right: texts 0, 2, 4 (image 0) and 6 (image 1); wrong: 1 and 3 (image 1), 5, 7, 8 and 9 (image 0)
    assert result.text_to_image.at == {1: 40.0, 5: 100.0, 10: 100.0}
    assert result.image_to_text.at == {1: 50.0, 5: 100.0, 10: 100.0}
    assert result.image_to_text.median_rank == 2.5  # ranks 1 and 4
    assert (result.image_to_text.queries, result.image_to_text.candidates) == (2, 10)
    assert (result.text_to_image.queries, result.text_to_image.candidates) == (10, 2)
    assert result.mean == pytest.approx(((50 + 100 + 100) / 3 + (40 + 100 + 100) / 3) / 2)
    diagonal = (scores.argmax(dim=1) == torch.arange(2)).float().mean()  # what a one-caption-per-image scorer says
    assert 100 * diagonal != result.image_to_text.at[1]


def test_equal_scores_put_the_later_index_first() -> None:
    equal = torch.zeros(2, 4)
    assert image_to_text_ranks(equal, torch.tensor([0, 0, 1, 1])).tolist() == [2, 0]
    assert text_to_image_ranks(torch.tensor([[0.0, -0.0]] * 2), torch.tensor([0, 1])).tolist() == [1, 0]
    keys = best(order_keys(torch.tensor([[1.0, 2.0, 2.0, -1.5, 2.0]])), 4)
    assert unpack(keys).candidates.tolist() == [[4, 2, 1, 0]]
    assert unpack(keys).scores.tolist() == [[2.0, 2.0, 2.0, 1.0]]


def test_keys_sort_as_the_scores_do() -> None:
    scores = torch.cat([torch.randn(200), torch.tensor([0.0, float("inf"), -float("inf"), 1e-42, -1e-42])])[None]
    everything = unpack(best(order_keys(scores), 1000))  # more than there are
    assert torch.equal(everything.scores, scores.sort(descending=True).values)
    assert torch.equal(scores.gather(1, everything.candidates), everything.scores)


def test_images_and_texts_without_partner_are_candidates_only() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]])
    image_of = torch.tensor([0, -1, 0])  # image 1 has no text, text 1 no image
    result = recall_both_ways(scores, scores.T, image_of)
    assert result.image_to_text.at[1] == 0.0 and result.image_to_text.queries == 1
    assert result.text_to_image.at[1] == 50.0 and result.text_to_image.queries == 2


def test_nan_is_refused_and_nothing_to_measure_too() -> None:
    with pytest.raises(ValueError, match="NaN"):
        image_to_text_ranks(torch.full((1, 2), float("nan")), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="nothing to measure"):
        recall(torch.tensor([-1, -1]), candidates=3)


@pytest.mark.parametrize("name", ["five", "uneven", "ties", "shortlist"])
def test_official_procedure(shared: Path, name: str) -> None:
    folder = shared / "parity/retrieval_grounding"
    tensors = load_file(folder / "case.safetensors")
    expected = json.loads((folder / "expected.json").read_text())["retrieval"][name]
    scores_i2t, scores_t2i = tensors[f"in.{name}.scores_i2t"], tensors[f"in.{name}.scores_t2i"]
    image_of = tensors[f"in.{name}.txt2img"]
    i2t, t2i = image_to_text_ranks(scores_i2t, image_of), text_to_image_ranks(scores_t2i, image_of)
    assert torch.equal(i2t, tensors[f"out.{name}.ranks_i2t_stable"])
    assert torch.equal(t2i, tensors[f"out.{name}.ranks_t2i_stable"])
    for places, way in ((i2t, "i2t"), (t2i, "t2i")):
        assert (places >= tensors[f"out.{name}.rank_best_{way}"]).all()
        assert (places <= tensors[f"out.{name}.rank_worst_{way}"]).all()

    result = recall_both_ways(scores_i2t, scores_t2i, image_of)
    figures = {"r_mean": result.mean}
    for prefix, way in (("txt", result.image_to_text), ("img", result.text_to_image)):
        figures |= {f"{prefix}_r{count}": value for count, value in way.at.items()} | {f"{prefix}_r_mean": way.mean}
    assert figures == pytest.approx(expected["with_stable_sort"], abs=1e-9)
    if name in ("five", "uneven"):  # without ties the official ranks are the stable ones
        assert result.image_to_text.median_rank == expected["txt_median_rank_1based"]
        assert result.text_to_image.median_rank == expected["img_median_rank_1based"]
        assert result.text_to_image.mean_rank == pytest.approx(expected["img_mean_rank_1based"])
