"""Writing a world to disk: PNG files, the facts of every scene, and captions in the formats that readers know.

Every format names the same images, by paths relative to the folder.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from PIL import Image

from alignfuse.errors import UserError
from alignfuse.world.captions import captions
from alignfuse.world.render import render
from alignfuse.world.sampling import Sample, World
from alignfuse.world.scenes import relations

Progress = Callable[[int, int], None]  # images written, images in all
SPLITS = ("train", "val", "test")


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
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not an empty folder: choose another one for the export")
    world = world or World()
    samples = [sample for split in SPLITS for sample in world.samples(split, sizes.get(split, 0))]
    _write_images(out, samples, image_size, progress)
    write_lines(out / "scenes.jsonl", (_facts_row(sample, image_size) for sample in samples))
    return FORMATS[format](out, samples, image_size)


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
    grouped = {split: [sample for sample in samples if sample.split == split] for split in SPLITS}
    return {split: members for split, members in grouped.items() if members}


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


def _jsonl(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """One line per image."""
    rows = (
        {"image": image_path(sample), "caption": texts(sample), "id": sample.id, "split": sample.split}
        for sample in samples
    )
    return [write_lines(out / "pairs.jsonl", rows)]


def _karpathy(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    images, sentence_id = [], 0
    for number, sample in enumerate(samples):
        folder, _, name = image_path(sample).rpartition("/")
        sentences = [
            {"tokens": text.split(), "raw": text, "imgid": number, "sentid": sentence_id + position}
            for position, text in enumerate(texts(sample))
        ]
        sentence_id += len(sentences)
        images.append(
            {
                "filepath": folder,
                "filename": name,
                "imgid": number,
                "split": sample.split,
                "sentids": [sentence["sentid"] for sentence in sentences],
                "sentences": sentences,
            }
        )
    return [write_json(out / "dataset_world.json", {"images": images, "dataset": "world"})]


def _coco(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """One file of captions per split, as COCO has them."""
    written = []
    for split, members in of_split(samples).items():
        images = [
            {"id": sample.index, "file_name": image_path(sample), "height": image_size, "width": image_size}
            for sample in members
        ]
        pairs = [(sample.index, text) for sample in members for text in texts(sample)]
        annotations = [{"image_id": image, "id": number, "caption": text} for number, (image, text) in enumerate(pairs)]
        content = {"info": {}, "licenses": [], "images": images, "annotations": annotations}
        written.append(write_json(out / f"captions_{split}.json", content))
    return written


def _albef(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """Pretraining and retrieval lists: in retrieval_train one row per caption, in val and test one per image."""
    written = []
    for split, members in of_split(samples).items():
        per_image = [{"image": image_path(sample), "caption": texts(sample)} for sample in members]
        if split == "train":
            written.append(write_json(out / "pretrain.json", per_image))
            per_caption = [
                {"image": image_path(sample), "caption": text, "image_id": sample.id}
                for sample in members
                for text in texts(sample)
            ]
            written.append(write_json(out / "retrieval_train.json", per_caption))
        else:
            written.append(write_json(out / f"retrieval_{split}.json", per_image))
    return written


Writer = Callable[[Path, Sequence[Sample], int], list[Path]]
FORMATS: dict[str, Writer] = {"jsonl": _jsonl, "karpathy": _karpathy, "coco": _coco, "albef": _albef}
