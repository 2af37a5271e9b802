"""Image tokens from the feature map of a convolutional network, as an alternative to the vision transformer.

Shapes: B images, H and W pixels, N = rows x columns grid places, D width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn

from alignfuse.blocks.efficientnet import FEATURES, STRIDE, EfficientNetLite0
from alignfuse.blocks.tokens import Tokens
from alignfuse.blocks.transformer import Block, check_sizes, initialise
from alignfuse.blocks.vision import Grid, VisionConfig, VisionTransformer, normalise, resize_positions

LITE_MEAN = (127 / 255, 127 / 255, 127 / 255)
LITE_STD = (128 / 255, 128 / 255, 128 / 255)


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """Sizes of a grid encoder; mean and deviation belong to the pixels that its network was trained on (range 0-1)."""

    kind: Literal["efficientnet_lite0"] = "efficientnet_lite0"
    image_size: tuple[int, int] = (224, 224)  # height, width in pixels
    width: int = 384
    layers: int = 0  # transformer blocks over the grid
    heads: int = 6
    hidden: int = 1536
    eps: float = 1e-6
    dropout: float = 0.0
    freeze: bool = False  # True: the network stays as it was loaded, only what stands on it is trained
    mean: tuple[float, float, float] = LITE_MEAN
    std: tuple[float, float, float] = LITE_STD

    def __post_init__(self) -> None:
        check_sizes(
            layers=self.layers, dropout=self.dropout, height=self.image_size[0], image_width=self.image_size[1],
            width=self.width, heads=self.heads, hidden=self.hidden,
        )  # fmt: skip
        if min(self.std) <= 0:
            raise ValueError(f"std must be above 0, not {self.std}")

    @property
    def grid(self) -> Grid:
        """Rows and columns of the feature map at `image_size`."""
        return -(-self.image_size[0] // STRIDE), -(-self.image_size[1] // STRIDE)


class GridEncoder(nn.Module):
    """Feature map, a linear map to the width, positions, optional transformer blocks, a last LayerNorm.

    The first token stands for the whole image: it starts as the mean of the others.
    """

    prefix = 1

    def __init__(self, config: GridConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        rows, columns = config.grid
        self.projection = nn.Linear(FEATURES, config.width)
        self.positions = nn.Parameter(torch.zeros(1, 1 + rows * columns, config.width))
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, hidden=config.hidden, norm="pre", eps=config.eps, dropout=config.dropout)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, eps=config.eps)
        initialise(self, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)
        self.network = EfficientNetLite0().requires_grad_(not config.freeze)

    def forward(self, images: Num[Tensor, "B 3 H W"]) -> Tokens:
        """All tokens, the global one first. Another image size than the config's gets interpolated positions."""
        pixels = normalise(images, self.config.mean, self.config.std)
        with torch.autocast(images.device.type, enabled=False):  # CPUs are ten times slower at convolutions in bf16
            features = self.network(pixels.float().contiguous(memory_format=torch.channels_last))
        grid: Grid = (features.shape[-2], features.shape[-1])
        places: Float[Tensor, "B N D"] = self.projection(features.flatten(2).transpose(1, 2))
        x = torch.cat([places.mean(dim=1, keepdim=True), places], dim=1)
        x = x + resize_positions(self.positions, self.config.grid, grid)
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        for block in self.blocks:
            x = block(x, mask[:, None])
        return Tokens(self.norm(x), mask, grid, self.prefix)


ImageConfig = VisionConfig | GridConfig


def image_encoder(config: ImageConfig) -> VisionTransformer | GridEncoder:
    """The image encoder of a config."""
    return GridEncoder(config) if isinstance(config, GridConfig) else VisionTransformer(config)
