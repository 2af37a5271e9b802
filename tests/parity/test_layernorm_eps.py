"""LayerNorm inputs of tiny variance: a wrong eps shows."""

from pathlib import Path

import torch
from torch import Tensor

from tests.parity.case import Case


def test_small_variance(shared: Path) -> None:
    case = Case(shared / "parity/albef/layernorm_eps")
    model = case.convert().model
    seen: dict[str, Tensor] = {}
    model.image_encoder.blocks[0].attention_norm.register_forward_hook(lambda *call: seen.update(image=call[2]))
    model.text_encoder.embeddings.norm.register_forward_hook(lambda *call: seen.update(text=call[2]))
    text = case.text()
    with torch.no_grad():
        image = model.encode_image(case["in.image_u8"])
        encoded = model.encode_text(text)
        fused = model.fuse(encoded, model.remember(image))
        logits = model.predict(fused, torch.arange(text.ids.numel())).unflatten(0, text.ids.shape)
    case.agree("out.image_embeds", image.states)
    case.agree("out.block0_norm1_output", seen["image"])
    case.agree("out.text_embedding_output", seen["text"])
    assert encoded.states is not None
    case.agree("out.text_embeds", encoded.states, text.mask)
    case.agree("out.mlm_logits", logits, text.mask)


def test_padded_places_inside_the_blocks(shared: Path) -> None:
    """The verbs clear padded places; the blocks compute there what the official code computes."""
    case = Case(shared / "parity/albef/layernorm_eps")
    model = case.convert().model
    text = case.text()
    with torch.no_grad():
        x = model.text_encoder.embeddings(text.ids)
        for block in model.text_encoder.blocks:
            x = block(x, text.mask[:, None])
        case.agree("out.text_embeds", x)
        memory = model.remember(model.encode_image(case["in.image_u8"]))
        for block, layer in zip(model.fusion_encoder.layers(), memory.layers, strict=True):
            x = block(x, text.mask[:, None], layer)
        case.agree(
            "out.mlm_logits",
            model.mask_head(x.flatten(0, 1), model.text_encoder.embeddings.word.weight).view_as(case["out.mlm_logits"]),
        )
