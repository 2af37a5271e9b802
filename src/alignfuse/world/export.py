"""Writing a world to disk: PNG files, the facts of every scene, and annotations in the official formats.

Annotations name images by their paths relative to the folder wherever their format has room for a path.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PIL import Image

from alignfuse.errors import UserError
from alignfuse.files import require_empty, writing
from alignfuse.world import pair_formats, task_formats
from alignfuse.world.files import image_path, of_split, write_lines
from alignfuse.world.render import render
from alignfuse.world.sampling import FIRST_INDEX, Sample, World
from alignfuse.world.scenes import relations

Progress = Callable[[int, int], None]  # images written, images in all


def split_sizes(count: int) -> dict[str, int]:
    """Numbers of scenes for `count` training scenes: a tenth as many for val and for test, 1,000 at most."""
    held_out = min(1000, max(1, count // 10))
    return {"train": count, "val": held_out, "test": held_out}


def export(
    out: Path,
    sizes: Mapping[str, int],
    *,
    world: World | None = None,
    image_size: int = 32,
    format: str = "jsonl",
    progress: Progress | None = None,
) -> list[Path]:
    """Write `sizes` scenes of each split into the empty or new folder `out`; the annotation files come back.

    `out/images/SPLIT/ID.png` are the scenes, `out/scenes.jsonl` holds their facts. Raises UserError.
    """
    if format not in FORMATS:
        raise UserError(f"unknown export format {format!r}: choose one of {', '.join(FORMATS)}")
    require_empty(out, remedy="choose another folder for the export")
    world = world or World()
    samples = [sample for split in FIRST_INDEX for sample in world.samples(split, sizes.get(split, 0))]
    with writing(out):
        _write_images(out, samples, image_size, progress)
        write_lines(out / "scenes.jsonl", (_facts_row(sample, image_size) for sample in samples))
        return FORMATS[format](out, samples, image_size)


def _write_images(out: Path, samples: Sequence[Sample], image_size: int, progress: Progress | None) -> None:
    for split in of_split(samples):
        (out / "images" / split).mkdir(parents=True)
    for done, sample in enumerate(samples, start=1):
        pixels = render(sample.scene, image_size)
        Image.fromarray(pixels).save(out / image_path(sample), compress_level=1)
        if progress is not None and (done % 100 == 0 or done == len(samples)):
            progress(done, len(samples))


def _facts_row(sample: Sample, image_size: int) -> dict[str, object]:
    things = [
        {
            "size": thing.size,
            "colour": thing.colour,
            "texture": thing.texture,
            "shape": thing.shape,
            "box": [round(edge, 2) for edge in thing.box(image_size)],
        }
        for thing in sample.scene.things
    ]
    row: dict[str, object] = {"id": sample.id, "split": sample.split, "image": image_path(sample), "things": things}
    return {**row, "relations": relations(sample.scene)}


Writer = Callable[[Path, Sequence[Sample], int], list[Path]]
FORMATS: dict[str, Writer] = {
    "jsonl": pair_formats.jsonl,
    "karpathy": pair_formats.karpathy,
    "coco": pair_formats.coco,
    "albef": pair_formats.albef,
    "csv": pair_formats.table,
    "vqa": task_formats.vqa,
    "nlvr2": task_formats.nlvr2,
    "snli-ve": task_formats.snli_ve,
    "refcoco": task_formats.refcoco,
}
