"""The pretraining checkpoint at other image sizes: position tables, image tokens, features."""

from pathlib import Path

import pytest
import torch

from tests.parity.case import Case


@pytest.mark.parametrize("size", [96, 48, 80])
def test_other_image_sizes(shared: Path, size: int) -> None:
    case = Case(shared / "parity/albef/pos_embed")
    converted = case.convert(image_size=size)
    model, teacher = converted.model, converted.teacher.model
    group = f"size{size}."
    case.agree(f"out.{group}visual_encoder.pos_embed", model.image_encoder.positions)
    case.agree(f"out.{group}visual_encoder_m.pos_embed", teacher.image_encoder.positions)
    with torch.no_grad():
        image = model.encode_image(case[f"in.{group}image_u8"])
        case.agree(f"out.{group}image_embeds", image.states)
        case.agree(f"out.{group}image_feat", model.embed_image(image))
        case.agree(f"out.{group}image_feat_m", teacher.embed_image(teacher.encode_image(case[f"in.{group}image_u8"])))


def test_resized_in_the_forward_pass(shared: Path) -> None:
    """The unchanged model reads images of another size as the model that was loaded for it does."""
    case = Case(shared / "parity/albef/pos_embed")
    model = case.convert().model
    with torch.no_grad():
        case.agree("out.size96.image_embeds", model.encode_image(case["in.size96.image_u8"]).states)
