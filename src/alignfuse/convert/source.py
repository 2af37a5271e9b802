"""Weights of one or more parts of a model, as read from a file of any layout."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    heads_stated: bool = True  # False: a guess from the width
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
        for name in found.unused:
            (report.left_out if name.startswith(self.left_out) else report.unexpected).append(name)
        return report

    def _compare(self, config: ALBEFConfig, report: LoadReport) -> None:
        """Settings that leave no trace in the shapes: a wrong one would load and give nonsense."""
        if self.image is not None and self.image.kind != config.image.kind:
            raise UserError(f"{self.path}: a {self.image.kind}, but the model's image encoder is {config.image.kind}")
        for name, theirs, ours in (("image", self.image, config.image), ("text", self.text, config.text)):
            if theirs is not None and not self.heads_stated:
                report.notices.append(f"{name} encoder: attention heads not stated in the source, {ours.heads} taken")
            elif theirs is not None and theirs.heads != ours.heads:
                raise UserError(
                    f"{self.path}: its {name} encoder has {theirs.heads} attention heads, this model {ours.heads}"
                )


def guess_heads(width: int) -> int:
    """Heads of 64 channels, as in every BERT and ViT of the published sizes."""
    return max(width // 64, 1)
