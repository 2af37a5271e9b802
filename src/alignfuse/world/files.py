"""Names and plain files of an exported world."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from alignfuse.world.captions import captions
from alignfuse.world.sampling import FIRST_INDEX, Sample


def image_path(sample: Sample) -> str:
    """Where the image of a scene lies in the exported folder."""
    return f"images/{sample.split}/{sample.id}.png"


def write_json(path: Path, value: object) -> Path:
    """One JSON value."""
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def write_lines(path: Path, rows: Iterable[object]) -> Path:
    """One JSON value a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(sample: Sample) -> list[str]:
    """The five captions of a scene."""
    return [caption.text for caption in captions(sample.scene)]


def of_split(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    """Samples of each split that has any."""
    grouped = {split: [sample for sample in samples if sample.split == split] for split in FIRST_INDEX}
    return {split: members for split, members in grouped.items() if members}
