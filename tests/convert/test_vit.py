"""ViT and DeiT of both layouts as starting weights: equal tokens, other image sizes, nothing lost in silence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from alignfuse.blocks.grid import ImageConfig
from alignfuse.blocks.text import TextConfig
from alignfuse.blocks.vision import VisionConfig, resize_positions
from alignfuse.convert.initial import image_config, init_from
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig

transformers = pytest.importorskip("transformers")

TEXT = TextConfig(vocab_size=8, width=8, layers=1, fusion_layers=1, heads=2, hidden=8, positions=4)


def tiny(kind: str, folder: Path) -> torch.nn.Module:
    """A random model of 3 x 3 patches, saved in `folder`."""
    torch.manual_seed(2)
    family = transformers.DeiTConfig if kind.startswith("DeiT") else transformers.ViTConfig
    sizes = family(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=40,
        image_size=48,
        patch_size=16,
        layer_norm_eps=1e-5,
    )
    vit = getattr(transformers, kind)(sizes).eval()
    for parameter in vit.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    vit.save_pretrained(folder)
    return vit


def ours(image: ImageConfig) -> ALBEF:
    torch.manual_seed(0)
    return ALBEF(ALBEFConfig(image=image, text=TEXT, embed_dim=4)).eval()


def timm_layout(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The saved state of a `ViTModel` under timm's names, written down by hand."""
    renamed = {
        "cls_token": state["embeddings.cls_token"],
        "pos_embed": state["embeddings.position_embeddings"],
        "patch_embed.proj.weight": state["embeddings.patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": state["embeddings.patch_embeddings.projection.bias"],
        "head.weight": torch.ones(1000, 16),
        "head.bias": torch.ones(1000),
    }
    for kind in ("weight", "bias"):
        renamed[f"norm.{kind}"] = state[f"layernorm.{kind}"]
        for i in range(2):
            old, new = f"encoder.layer.{i}", f"blocks.{i}"
            parts = [state[f"{old}.attention.attention.{part}.{kind}"] for part in ("query", "key", "value")]
            renamed[f"{new}.attn.qkv.{kind}"] = torch.cat(parts)
            renamed[f"{new}.attn.proj.{kind}"] = state[f"{old}.attention.output.dense.{kind}"]
            renamed[f"{new}.norm1.{kind}"] = state[f"{old}.layernorm_before.{kind}"]
            renamed[f"{new}.norm2.{kind}"] = state[f"{old}.layernorm_after.{kind}"]
            renamed[f"{new}.mlp.fc1.{kind}"] = state[f"{old}.intermediate.dense.{kind}"]
            renamed[f"{new}.mlp.fc2.{kind}"] = state[f"{old}.output.dense.{kind}"]
    return renamed


@pytest.mark.parametrize("size", [(48, 48), (32, 80)])
@pytest.mark.parametrize("kind", ["ViTModel", "ViTForImageClassification"])
def test_same_tokens_as_transformers(tmp_path: Path, kind: str, size: tuple[int, int]) -> None:
    vit = tiny(kind, tmp_path)
    sizes = image_config(tmp_path, VisionConfig(), image_size=size)
    assert isinstance(sizes, VisionConfig)
    assert (sizes.heads, sizes.eps, sizes.hidden, sizes.image_size) == (4, 1e-5, 40, size)
    model = ours(sizes)
    report = init_from(model, image=tmp_path)
    pixels = torch.randn(2, 3, *size)
    with torch.no_grad():
        theirs = getattr(vit, "vit", vit)(pixels, interpolate_pos_encoding=True).last_hidden_state
        image = model.encode_image(pixels)
    torch.testing.assert_close(image.states, theirs, atol=2e-5, rtol=1e-4)
    assert image.grid == (size[0] // 16, size[1] // 16)
    assert not report.missing and not report.unexpected
    assert {name.split(".")[-2] for name in report.left_out} <= {"classifier", "dense"}
    assert bool(report.resized) == (size != (48, 48))


def test_timm_layout(tmp_path: Path) -> None:
    vit = tiny("ViTModel", tmp_path)
    torch.save({"model": timm_layout(load_file(tmp_path / "model.safetensors"))}, tmp_path / "deit.pth")
    image = VisionConfig(image_size=(48, 48), width=16, layers=2, heads=4, hidden=40, eps=1e-5)
    (tmp_path / "config.json").unlink()
    model = ours(image)
    report = init_from(model, image=tmp_path / "deit.pth")
    pixels = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        torch.testing.assert_close(
            model.encode_image(pixels).states, vit(pixels).last_hidden_state, atol=2e-5, rtol=1e-4
        )
    assert report.left_out == ["head.weight", "head.bias"]
    assert "image encoder: attention heads not stated in the source, 4 taken" in report.notices


@pytest.mark.parametrize("kind", ["DeiTModel", "DeiTForImageClassificationWithTeacher"])
def test_deit_without_its_distillation_token(tmp_path: Path, kind: str) -> None:
    """Everything but that token and its place in the table: then it is a ViT."""
    tiny(kind, tmp_path)
    prefix = "" if kind == "DeiTModel" else "deit."
    state = {name.removeprefix(prefix): value for name, value in load_file(tmp_path / "model.safetensors").items()}
    model = ours(image_config(tmp_path, VisionConfig()))
    report = init_from(model, image=tmp_path)
    assert not report.missing and not report.unexpected
    assert any("distillation token" in notice for notice in report.notices)

    table = state.pop("embeddings.position_embeddings")
    state["embeddings.position_embeddings"] = table[:, [0, *range(2, 11)]]
    vit = tiny("ViTModel", tmp_path / "vit")
    expected = {name: state[name] for name in load_file(tmp_path / "vit" / "model.safetensors") if name in state}
    save_file({name: value.contiguous() for name, value in expected.items()}, tmp_path / "vit" / "model.safetensors")
    vit = transformers.ViTModel.from_pretrained(tmp_path / "vit").eval()
    pixels = torch.randn(1, 3, 48, 48)
    with torch.no_grad():
        torch.testing.assert_close(
            model.encode_image(pixels).states, vit(pixels).last_hidden_state, atol=2e-5, rtol=1e-4
        )


def test_positions_of_another_image_size(tmp_path: Path) -> None:
    tiny("ViTModel", tmp_path)
    state = load_file(tmp_path / "model.safetensors")
    model = ours(image_config(tmp_path, VisionConfig(), image_size=(96, 64)))
    report = init_from(model, image=tmp_path)
    expected = resize_positions(state["embeddings.position_embeddings"], (3, 3), (6, 4))
    torch.testing.assert_close(model.image_encoder.positions, expected)
    assert report.resized == {"image_encoder.positions": "from 3 x 3 to 6 x 4 places"}


@pytest.mark.parametrize("extra", ["blocks.1.ls1.gamma", "blocks.0.attn.q_norm.weight"])
def test_layers_that_compute_more_are_refused(tmp_path: Path, extra: str) -> None:
    """LayerScale, query norm: everything else would load, and the tokens would be wrong."""
    tiny("ViTModel", tmp_path)
    state = timm_layout(load_file(tmp_path / "model.safetensors"))
    torch.save(state | {extra: torch.ones(16)}, tmp_path / "other.pth")
    model = ours(VisionConfig(image_size=(48, 48), width=16, layers=2, heads=4, hidden=40, eps=1e-5))
    with pytest.raises(UserError, match=f"{extra} has no counterpart here"):
        init_from(model, image=tmp_path / "other.pth")


def test_fewer_layers_than_the_source(tmp_path: Path) -> None:
    tiny("ViTModel", tmp_path)
    model = ours(VisionConfig(image_size=(48, 48), width=16, layers=1, heads=4, hidden=40, eps=1e-5))
    report = init_from(model, image=tmp_path)
    assert len([name for name in report.left_out if name.startswith("encoder.layer.1.")]) == 16


def test_settings_without_trace_in_the_shapes_are_compared(tmp_path: Path) -> None:
    tiny("ViTModel", tmp_path)
    stated = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    image = VisionConfig(image_size=(48, 48), width=16, layers=2, heads=4, hidden=40, eps=1e-6)
    notices = " ".join(init_from(ours(image), image=tmp_path).notices)
    assert "LayerNorm eps is 1e-05 there, 1e-06 here" in notices
    assert "pixels have mean (0.5, 0.5, 0.5)" in notices
    with pytest.raises(UserError, match="its image encoder has 4 attention heads, this model 2"):
        init_from(ours(replace(image, heads=2)), image=tmp_path)


def test_pixels_of_the_source(tmp_path: Path) -> None:
    """Mean and deviation come with the weights."""
    tiny("ViTModel", tmp_path)
    stated = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.1]}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(stated))
    sizes = image_config(tmp_path, VisionConfig())
    assert (sizes.mean, sizes.std) == ((0.5, 0.4, 0.3), (0.2, 0.2, 0.1))


def test_another_kind_of_encoder_is_refused(tmp_path: Path) -> None:
    torch.save({"head.weight": torch.zeros(1)}, tmp_path / "x.pth")
    with pytest.raises(UserError, match="no image encoder of a known layout; its names are head"):
        image_config(tmp_path / "x.pth", VisionConfig())
