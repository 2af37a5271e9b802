"""One parity case: inputs, fixed draws, and what the official code made of them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.convert.albef import Converted, build, read, sources
from alignfuse.convert.layout import to_theirs
from alignfuse.models.albef import ALBEF

MEAN, STD = (128 / 255,) * 3, (64 / 255,) * 3  # (u8 - 128) / 64


def near(actual: Tensor, expected: Tensor, *, noise: float, magnitude: float, name: str) -> None:
    """Assert equality within the larger of 10 x the stated noise and 2e-5 + 1e-4 x magnitude."""
    assert actual.shape == expected.shape, f"{name}: {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    if not expected.is_floating_point():
        assert torch.equal(actual, expected), name
        return
    tolerance = max(10 * noise, 2e-5 + 1e-4 * magnitude)
    error = (actual.detach() - expected).abs().max().item()
    assert error <= tolerance, f"{name}: off by {error:.2e}, allowed {tolerance:.2e}"


class Case:
    """A folder of the reference data for ALBEF."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tensors = load_file(folder / "case.safetensors")
        self.noise = json.loads((folder / "noise.json").read_text())
        self.config = json.loads((folder / "config.json").read_text())
        self.checkpoint = folder / "checkpoint.pth"

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def read(self, name: str) -> dict[str, dict[str, float]]:
        """A JSON file of the case (`grad_norms`, `param_norms_after`, `expected`)."""
        content: dict[str, dict[str, float]] = json.loads((self.folder / f"{name}.json").read_text())
        return content

    def convert(self, *, image_size: int | None = None) -> Converted:
        """The checkpoint at dropout 0 and with the pixels of these cases, at its own or another image size."""
        checkpoint = read(self.checkpoint)
        for pattern, exponent in self.config.get("tensor_scale_exponents", {}).items():
            for name, value in {**checkpoint.student, **checkpoint.teacher}.items():
                if re.search(pattern, name):
                    value.mul_(2.0**exponent)
        config = checkpoint.config
        size = config.image.image_size if image_size is None else (image_size, image_size)
        image = replace(config.image, image_size=size, mean=MEAN, std=STD)
        return build(checkpoint, replace(config, image=image, text=replace(config.text, dropout=0.0)))

    def text(self, group: str = "", ids: str = "in.{}input_ids") -> Text:
        """The texts of a group of inputs ("step1." and so on), from the ids of the given name."""
        mask = self.tensors[f"in.{group}attention_mask"].bool()
        return Text(self.tensors[ids.format(group)], mask)

    def official(self, model: ALBEF, tensors: dict[str, Tensor], *, momentum: bool = False) -> dict[str, Tensor]:
        """Our parameters or gradients under their official names, split where we keep them fused."""
        prefix = "" if self.config["case"] == "retrieval" else "bert."
        return to_theirs(tensors, sources(model.config, bert_prefix=prefix, momentum=momentum))

    def agree(self, name: str, actual: Tensor, where: Tensor | None = None) -> None:
        """Assert that `actual` is the tensor `name` of the case within its tolerance; `where`: real tokens alone."""
        stated, expected = self.noise[name], self.tensors[name]
        if where is not None:
            actual, expected = actual[where], expected[where]
        near(actual, expected, noise=stated["noise"], magnitude=stated["max_abs"], name=name)
