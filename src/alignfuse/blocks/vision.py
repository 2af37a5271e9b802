"""Vision transformer (Dosovitskiy et al. 2021, section 3.1) with a position table that follows any grid.

Shapes: B batch, H and W pixels, L = prefix + rows x columns tokens, D width.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Num
from torch import Tensor, nn
from torch.nn.functional import interpolate

from alignfuse.blocks.tokens import Tokens
from alignfuse.blocks.transformer import Block, check_sizes, initialise

Grid = tuple[int, int]
CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


@dataclass(frozen=True, kw_only=True)
class VisionConfig:
    """Sizes of a vision transformer; mean and deviation belong to the pixels it was trained on (range 0-1)."""

    kind: Literal["vit"] = "vit"
    image_size: tuple[int, int] = (224, 224)  # height, width in pixels
    patch_size: int = 16
    width: int = 768
    layers: int = 12
    heads: int = 12
    hidden: int = 3072
    eps: float = 1e-6
    dropout: float = 0.0
    init_std: float = 0.02  # of linear weights at the start; a narrow model learns faster from about 1 / sqrt(2 width)
    position_init: Literal["normal", "sine"] = "normal"  # sine: places are told apart from the first step on
    stem: Literal["patch", "convolution"] = "patch"
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD

    def __post_init__(self) -> None:
        check_sizes(
            layers=self.layers, dropout=self.dropout, patch_size=self.patch_size, height=self.image_size[0],
            image_width=self.image_size[1], width=self.width, heads=self.heads, hidden=self.hidden,
        )  # fmt: skip
        if min(self.std) <= 0:
            raise ValueError(f"std must be above 0, not {self.std}")

    @property
    def grid(self) -> Grid:
        """Rows and columns of patches at `image_size`."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size


def normalise(
    images: Num[Tensor, "B 3 H W"], mean: tuple[float, float, float], std: tuple[float, float, float]
) -> Float[Tensor, "B 3 H W"]:
    """uint8 pixels to (pixel - mean) / deviation; float images are taken as normalised already."""
    if images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images must be [B, 3, H, W], not {list(images.shape)}")
    if images.dtype != torch.uint8:
        return images
    scale = torch.tensor([mean, std], dtype=torch.float64, device=images.device).mul(255).float()[..., None, None]
    return (images.float() - scale[0]) / scale[1]


def resize_positions(table: Float[Tensor, "1 L D"], old: Grid, new: Grid, *, prefix: int = 1) -> Float[Tensor, "1 N D"]:
    """The position table for another grid: bicubic on the grid part, the prefix ([CLS]) kept as it is."""
    if old == new:
        return table
    grid = table[:, prefix:].reshape(1, *old, -1).permute(0, 3, 1, 2).float()
    resized = interpolate(grid, size=new, mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)
    return torch.cat([table[:, :prefix], resized.to(table.dtype)], dim=1)


def sine_positions(grid: Grid, width: int) -> Float[Tensor, "N D"]:
    """Sines and cosines of row and column at D / 4 frequencies (Vaswani et al. 2017, for two axes), amplitude 0.5."""
    if width % 4:
        raise ValueError(f"sine positions need a width that is a multiple of 4, not {width}")
    frequencies = 100.0 ** -(torch.arange(width // 4) / (width // 4))
    rows, columns = torch.meshgrid(torch.arange(grid[0]), torch.arange(grid[1]), indexing="ij")
    angles = [axis.flatten()[:, None] * frequencies for axis in (rows, columns)]
    return 0.5 * torch.cat([wave for angle in angles for wave in (angle.sin(), angle.cos())], dim=1)


def convolution_stem(width: int, patch_size: int) -> nn.Sequential:
    """Stride-2 convolutions down to one token per patch (Xiao et al. 2021): small models see edges sooner."""
    steps = patch_size.bit_length() - 1
    if patch_size != 2**steps or steps < 1:
        raise ValueError(f"a convolution stem needs a patch size that is a power of two, not {patch_size}")
    layers: list[nn.Module] = []
    channels = 3
    for step in range(steps):
        out = max(width >> (steps - 1 - step), 16)
        layers += [nn.Conv2d(channels, out, 3, stride=2, padding=1), nn.GroupNorm(1, out), nn.GELU()]
        channels = out
    return nn.Sequential(*layers, nn.Conv2d(channels, width, 1))


class VisionTransformer(nn.Module):
    """Patches, a class token, positions, pre-norm blocks, a last LayerNorm."""

    prefix = 1

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.width = config.width
        if config.stem == "patch":
            self.stem: nn.Module = nn.Conv2d(3, config.width, config.patch_size, stride=config.patch_size)
        else:
            self.stem = convolution_stem(config.width, config.patch_size)
        rows, columns = config.grid
        self.cls_token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + rows * columns, config.width))
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, hidden=config.hidden, norm="pre", eps=config.eps, dropout=config.dropout)
            for _ in range(config.layers)
        )
        self.norm = nn.LayerNorm(config.width, eps=config.eps)
        initialise(self, config.init_std)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)
        if config.position_init == "sine":
            self.positions.data[0, 1:] = sine_positions(config.grid, config.width)

    def forward(self, images: Num[Tensor, "B 3 H W"]) -> Tokens:
        """All tokens, [CLS] first. Another image size than the config's gets interpolated positions."""
        pixels, size = normalise(images, self.config.mean, self.config.std), self.config.patch_size
        if images.shape[-2] < size or images.shape[-1] < size:
            raise ValueError(f"an image of {images.shape[-2]} x {images.shape[-1]} px has no {size} px patch")
        patches = self.stem(pixels)
        grid: Grid = (patches.shape[-2], patches.shape[-1])
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), patches.flatten(2).transpose(1, 2)], dim=1)
        x = x + resize_positions(self.positions, self.config.grid, grid)
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        for block in self.blocks:
            x = block(x, mask[:, None])
        return Tokens(self.norm(x), mask, grid, self.prefix)
