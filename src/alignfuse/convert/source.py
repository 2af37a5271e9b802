"""Weights of one or more parts of a model, as read from a file of any layout."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from alignfuse.blocks.grid import ImageConfig
from alignfuse.blocks.text import TextConfig
from alignfuse.convert.fill import cut_text_positions, fill, resize_image_positions
from alignfuse.convert.layout import Sources, to_ours
from alignfuse.convert.report import LoadReport
from alignfuse.errors import UserError
from alignfuse.models.albef import ALBEF, ALBEFConfig

TEXT_PARTS = ("text_encoder.", "fusion_encoder.", "mask_head.")
IMAGE_PARTS = ("image_encoder.",)


@dataclass(frozen=True, kw_only=True)
class Source:
    """A weight file whose layout was recognised. It answers for all of our names that begin with one of `parts`."""

    path: Path
    state: dict[str, Tensor]
    names: Callable[[ALBEFConfig], Sources]  # where a model of a given config finds its tensors
    parts: tuple[str, ...]
    text: TextConfig | None = None  # sizes of the text side, where it has one
    image: ImageConfig | None = None  # sizes of the image side, where it has one
    lacks: Callable[[str], bool] = lambda name: False  # our names that such a file cannot hold
    left_out: tuple[str, ...] = ()  # beginnings of its names that are known and not used
    heads: Literal["stated", "guessed", "none"] = "stated"  # the attention heads of `text` and `image`
    pixels_stated: bool = True  # whether mean and deviation of `image` are facts
    notices: tuple[str, ...] = ()

    def load(self, model: ALBEF) -> LoadReport:
        """Fill the model; what does not fit stands in the report."""
        report = LoadReport(source=str(self.path), notices=list(self.notices))
        config = model.config
        self._compare(config, report)
        found = to_ours(self.state, self.names(config))
        grid = self.image.grid if self.image else None
        resize_image_positions(found.tensors, "image_encoder.positions", config.image.grid, report, old=grid)
        cut_text_positions(found.tensors, "text_encoder.embeddings.position.weight", config.text.positions, report)
        fill(model, found.tensors, report, parts=self.parts, lacks=self.lacks)
        self._sort_unused(found.unused, set(self.state).difference(found.unused), report)
        return report

    def _sort_unused(self, unused: list[str], used: set[str], report: LoadReport) -> None:
        """A tensor that we do not know, inside a layer that we use, means that the layer computes something else."""
        layers = {_layer(name) for name in used} - {None}
        for name in unused:
            if _layer(name) in layers:
                raise UserError(f"{self.path}: {name} has no counterpart here, so this is an encoder of another kind")
            (report.left_out if name.startswith(self.left_out) else report.unexpected).append(name)

    def _compare(self, config: ALBEFConfig, report: LoadReport) -> None:
        """Settings that leave no trace in the shapes: a wrong one would load and give nonsense."""
        if self.image is not None and self.image.kind != config.image.kind:
            raise UserError(f"{self.path}: a {self.image.kind}, but the model's image encoder is {config.image.kind}")
        for name, theirs, ours in (("image", self.image, config.image), ("text", self.text, config.text)):
            if theirs is None or self.heads == "none":
                continue
            if self.heads == "guessed":
                report.notices.append(f"{name} encoder: attention heads not stated in the source, {ours.heads} taken")
            elif theirs.heads != ours.heads:
                raise UserError(
                    f"{self.path}: its {name} encoder has {theirs.heads} attention heads, this model {ours.heads}"
                )
            if theirs.eps != ours.eps:
                report.notices.append(f"{name} encoder: LayerNorm eps is {theirs.eps} there, {ours.eps} here")
        if self.image is not None and not self.pixels_stated:
            report.notices.append("mean and deviation of the pixels not stated in the source, the model's taken")
        elif self.image is not None and (self.image.mean, self.image.std) != (config.image.mean, config.image.std):
            report.notices.append(
                f"pixels have mean {self.image.mean} and deviation {self.image.std} there, "
                f"{config.image.mean} and {config.image.std} here"
            )


def _layer(name: str) -> str | None:
    """The numbered layer that a tensor belongs to, such as "encoder.layer.3"."""
    found = re.match(r"(.*?\.\d+)\.", name)
    return found[1] if found else None


def guess_heads(width: int) -> int:
    """Heads of 64 channels, as in every BERT and ViT of the published sizes."""
    return max(width // 64, 1)
