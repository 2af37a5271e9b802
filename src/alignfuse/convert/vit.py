"""ViT and DeiT in the timm and in the Hugging Face layout."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from alignfuse.blocks.vision import VisionConfig
from alignfuse.convert.files import read_settings
from alignfuse.convert.fill import square_grid
from alignfuse.convert.layout import Sources, count_layers, module
from alignfuse.convert.source import IMAGE_PARTS, Source, guess_heads
from alignfuse.errors import UserError

# Known and not used; layers = those that a shallower model drops.
TIMM_LEFT_OUT = ("head.", "head_dist.", "pre_logits.", "fc_norm.", "dist_token", "blocks.")
HF_LEFT_OUT = (
    "pooler.",
    "embeddings.mask_token",
    "embeddings.distillation_token",
    "encoder.layer.",
)  # behind the prefix
HF_HEADS = ("classifier.", "cls_classifier.", "distillation_classifier.", "decoder.")


def timm(ours: str, theirs: str, layers: int) -> Sources:
    """Names of timm's VisionTransformer, which official ALBEF, BLIP and DeiT share."""
    sources: Sources = {f"{ours}.cls_token": (f"{theirs}cls_token",), f"{ours}.positions": (f"{theirs}pos_embed",)}
    sources |= module(f"{ours}.stem", f"{theirs}patch_embed.proj")
    for index in range(layers):
        own, block = f"{ours}.blocks.{index}", f"{theirs}blocks.{index}"
        sources |= {
            **module(f"{own}.attention_norm", f"{block}.norm1"),
            **module(f"{own}.attention.query_key_value", f"{block}.attn.qkv"),
            **module(f"{own}.attention.out", f"{block}.attn.proj"),
            **module(f"{own}.feed_forward_norm", f"{block}.norm2"),
            **module(f"{own}.up", f"{block}.mlp.fc1"),
            **module(f"{own}.down", f"{block}.mlp.fc2"),
        }
    return sources | module(f"{ours}.norm", f"{theirs}norm")


def hugging_face(ours: str, theirs: str, layers: int) -> Sources:
    """Names of `ViTModel` and `DeiTModel`."""
    sources: Sources = {
        f"{ours}.cls_token": (f"{theirs}embeddings.cls_token",),
        f"{ours}.positions": (f"{theirs}embeddings.position_embeddings",),
        **module(f"{ours}.stem", f"{theirs}embeddings.patch_embeddings.projection"),
    }
    for index in range(layers):
        own, block = f"{ours}.blocks.{index}", f"{theirs}encoder.layer.{index}"
        attention = f"{block}.attention.attention"
        sources |= {
            **module(f"{own}.attention_norm", f"{block}.layernorm_before"),
            **module(
                f"{own}.attention.query_key_value", f"{attention}.query", f"{attention}.key", f"{attention}.value"
            ),
            **module(f"{own}.attention.out", f"{block}.attention.output.dense"),
            **module(f"{own}.feed_forward_norm", f"{block}.layernorm_after"),
            **module(f"{own}.up", f"{block}.intermediate.dense"),
            **module(f"{own}.down", f"{block}.output.dense"),
        }
    return sources | module(f"{ours}.norm", f"{theirs}layernorm")


def sizes(state: Mapping[str, Tensor], found: Sources, **known: Any) -> VisionConfig:
    """The config that the shapes tell, by our names; the heads are a guess unless `known` has them."""

    def shape(name: str) -> torch.Size:
        return state[found[f"image_encoder.{name}"][0]].shape

    width, _, patch, _ = shape("stem.weight")
    rows, columns = square_grid(shape("positions")[1] - 1, found["image_encoder.positions"][0])
    config = VisionConfig(
        image_size=(rows * patch, columns * patch),
        patch_size=patch,
        width=width,
        layers=len([name for name in found if name.endswith("attention_norm.weight")]),
        heads=guess_heads(width),
        hidden=shape("blocks.0.up.weight")[0],
    )
    return replace(config, **known)


def recognise(path: Path, state: dict[str, Tensor]) -> Source | None:
    """ViT or DeiT, with or without classifiers; None where it is something else."""
    if "patch_embed.proj.weight" in state and "pos_embed" in state:
        layers = count_layers(state, "blocks")
        known = _pixels(read_settings(path))
        return _source(path, state, lambda name, count: timm(name, "", count), layers, known, TIMM_LEFT_OUT)
    prefix = next(
        (p for p in ("", "vit.", "deit.") if f"{p}embeddings.patch_embeddings.projection.weight" in state), None
    )
    if prefix is None:
        return None
    settings = read_settings(path)
    if settings.get("model_type", "vit") not in ("vit", "deit") or settings.get("hidden_act", "gelu") != "gelu":
        raise UserError(
            f"{path}: config.json says {settings.get('model_type')} with {settings.get('hidden_act')}; "
            "image encoders are read from ViT and DeiT with gelu"
        )
    known = {"eps": settings.get("layer_norm_eps", 1e-12), **_pixels(_preprocessor(path))}
    if "num_attention_heads" in settings:
        known["heads"] = settings["num_attention_heads"]
    left_out = tuple(prefix + name for name in HF_LEFT_OUT) + HF_HEADS
    layers = count_layers(state, f"{prefix}encoder.layer")
    return _source(path, state, lambda name, count: hugging_face(name, prefix, count), layers, known, left_out)


def _source(
    path: Path,
    state: dict[str, Tensor],
    layout: Callable[[str, int], Sources],
    layers: int,
    known: dict[str, Any],
    left_out: tuple[str, ...],
) -> Source:
    found = layout("image_encoder", layers)
    notices = []
    position_table = found["image_encoder.positions"][0]
    if any(name.endswith(("dist_token", "distillation_token")) for name in state):
        table = state[position_table]
        state = {**state, position_table: torch.cat([table[:, :1], table[:, 2:]], dim=1)}
        notices = ["the distillation token of DeiT is left out, with its place in the position table"]

    return Source(
        path=path,
        state=state,
        image=sizes(state, found, **known),
        names=lambda config: layout("image_encoder", config.image.layers),
        parts=IMAGE_PARTS,
        left_out=left_out,
        heads="stated" if "heads" in known else "guessed",
        pixels_stated="mean" in known,
        notices=tuple(notices),
    )


def _preprocessor(path: Path) -> dict[str, Any]:
    """The `preprocessor_config.json` of a directory."""
    file = path / "preprocessor_config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return settings if isinstance(settings, dict) else {}


def _pixels(settings: dict[str, Any]) -> dict[str, Any]:
    """Mean and deviation of the pixels where a config states them (range 0-1)."""
    settings = {**settings, **settings.get("pretrained_cfg", {})}
    known = {}
    for ours, theirs in (("mean", ("mean", "image_mean")), ("std", ("std", "image_std"))):
        for name in theirs:
            if isinstance(settings.get(name), list):
                known[ours] = tuple(settings[name])
    return known
