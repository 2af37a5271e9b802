"""EfficientNet-Lite0 in the layout of the package `efficientnet_lite_pytorch`."""

from pathlib import Path

from torch import Tensor

from alignfuse.blocks.efficientnet import STAGES
from alignfuse.blocks.grid import GridConfig
from alignfuse.convert.layout import Sources
from alignfuse.convert.source import IMAGE_PARTS, Source

LEFT_OUT = ("_fc.",)  # the classifier


def _unit(ours: str, convolution: str, norm: str) -> Sources:
    """One convolution with its BatchNorm."""
    names = {"weight": "weight", "bias": "bias", "mean": "running_mean", "variance": "running_var"}
    sources: Sources = {f"{ours}.0.weight": (f"{convolution}.weight",)}
    return sources | {f"{ours}.1.{own}": (f"{norm}.{name}",) for own, name in names.items()}


def lite0(ours: str) -> Sources:
    """Names of every tensor of the network."""
    sources = _unit(f"{ours}.stem", "_conv_stem", "_bn0")
    expansions = [stage.expansion for stage in STAGES for _ in range(stage.repeats)]
    for index, expansion in enumerate(expansions):
        own, block = f"{ours}.blocks.{index}", f"_blocks.{index}"
        if expansion > 1:
            sources |= _unit(f"{own}.expand", f"{block}._expand_conv", f"{block}._bn0")
        sources |= _unit(f"{own}.filter", f"{block}._depthwise_conv", f"{block}._bn1")
        sources |= _unit(f"{own}.project", f"{block}._project_conv", f"{block}._bn2")
    return sources | _unit(f"{ours}.head", "_conv_head", "_bn1")


def recognise(path: Path, state: dict[str, Tensor]) -> Source | None:
    """The network of a grid encoder; what stands on it is new. None where it is something else."""
    if "_conv_stem.weight" not in state or "_conv_head.weight" not in state:
        return None
    return Source(
        path=path,
        state=state,
        image=GridConfig(),
        names=lambda config: lite0("image_encoder.network"),
        parts=IMAGE_PARTS,
        lacks=lambda name: not name.startswith("image_encoder.network."),
        left_out=LEFT_OUT,
        heads="none",
    )
