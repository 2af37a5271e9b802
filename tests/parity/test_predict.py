"""Masked words predicted by the official code, with the own and with another image."""

from pathlib import Path

import pytest
import torch

from .case import Case


@pytest.fixture
def case(shared: Path) -> Case:
    return Case(shared / "parity/albef/predict")


@pytest.mark.parametrize("image", ["own_image", "swapped_image"])
def test_distribution_at_masked_places(case: Case, image: str) -> None:
    model = case.convert().model.eval()
    text = case.text()
    rows, columns = case["in.masked_positions"].T
    image_of = None if image == "own_image" else case["in.swapped_image_index"]
    with torch.no_grad():
        memory = model.remember(model.encode_image(case["in.image_u8"]))
        fused = model.fuse(model.encode_text(text), memory, image_of)
        logits = model.predict(fused, rows * text.ids.shape[1] + columns)
    case.agree(f"out.{image}.logits", logits)
    case.agree(f"out.{image}.probs", logits.softmax(-1))
    case.agree(f"out.{image}.top5_ids", logits.topk(5).indices)
