"""EfficientNet-Lite0 without its classifier (Tan & Le 2019; the "lite" variant has ReLU6 and no squeeze-excite).

Shapes: B images, H and W pixels, h = ceil(H / 32) and w = ceil(W / 32) grid rows and columns, C channels.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import batch_norm, conv2d, pad

FEATURES = 1280  # channels of the feature map
STRIDE = 32  # pixels per grid place
EPS = 1e-3


class Stage(NamedTuple):
    """Some inverted residual blocks of one size; the first one has the stride and changes the channels."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    channels: int


STAGES = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(2, 5, 2, 6, 40),
    Stage(3, 3, 2, 6, 80),
    Stage(3, 5, 1, 6, 112),
    Stage(4, 5, 2, 6, 192),
    Stage(1, 3, 1, 6, 320),
)


class SameConv2d(nn.Conv2d):
    """Convolution whose output is ceil(size / stride), with the odd padding pixel below and right (TensorFlow SAME)."""

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """The padded convolution."""
        amounts: list[int] = []
        for axis in (1, 0):  # `pad` counts from the last axis
            size, kernel, stride = x.shape[2 + axis], self.kernel_size[axis], self.stride[axis]
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            amounts += [total // 2, total - total // 2]
        return conv2d(pad(x, amounts), self.weight, self.bias, self.stride, groups=self.groups)


class FrozenBatchNorm(nn.Module):
    """BatchNorm at its stored statistics, in training too; scale and shift are ordinary parameters."""

    mean: Tensor
    variance: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
        """(x - mean) / deviation * weight + bias, per channel."""
        return batch_norm(x, self.mean, self.variance, self.weight, self.bias, training=False, eps=EPS)


def convolution(inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution and its norm, without activation."""
    return nn.Sequential(
        SameConv2d(inputs, outputs, kernel, stride, groups=groups, bias=False), FrozenBatchNorm(outputs)
    )


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project back; with a shortcut where nothing changes size."""

    def __init__(self, inputs: int, outputs: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        self.expand = convolution(inputs, hidden) if expansion > 1 else None
        self.filter = convolution(hidden, hidden, kernel, stride, groups=hidden)
        self.project = convolution(hidden, outputs)
        self.activation = nn.ReLU6()
        self.shortcut = inputs == outputs and stride == 1

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D h w"]:
        """The block's output, before any activation."""
        inner: Tensor = x if self.expand is None else self.activation(self.expand(x))
        inner = self.project(self.activation(self.filter(inner)))
        return x + inner if self.shortcut else inner


class EfficientNetLite0(nn.Module):
    """Pixels to a feature map with one place per 32 x 32 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = convolution(3, 32, kernel=3, stride=2)
        blocks: list[nn.Module] = []
        channels = 32
        for stage in STAGES:
            for index in range(stage.repeats):
                stride = stage.stride if index == 0 else 1
                blocks.append(
                    InvertedResidual(
                        channels, stage.channels, kernel=stage.kernel, stride=stride, expansion=stage.expansion
                    )
                )
                channels = stage.channels
        self.blocks = nn.Sequential(*blocks)
        self.head = convolution(channels, FEATURES)
        self.activation = nn.ReLU6()
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out")

    def forward(self, images: Float[Tensor, "B 3 H W"]) -> Float[Tensor, "B 1280 h w"]:
        """Feature map of normalised images."""
        x = self.blocks(self.activation(self.stem(images)))
        out: Tensor = self.activation(self.head(x))
        return out
