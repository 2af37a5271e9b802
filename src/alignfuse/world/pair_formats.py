"""Images with captions in the formats that pair readers know."""

import csv
from collections.abc import Sequence
from pathlib import Path

from alignfuse.world.files import image_path, of_split, texts, write_json, write_lines
from alignfuse.world.sampling import Sample


def jsonl(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """One line per image."""
    rows = (
        {"image": image_path(sample), "caption": texts(sample), "id": sample.id, "split": sample.split}
        for sample in samples
    )
    return [write_lines(out / "pairs.jsonl", rows)]


def table(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """A CSV table with one row per caption."""
    path = out / "captions.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "caption", "split"])
        writer.writerows([image_path(sample), text, sample.split] for sample in samples for text in texts(sample))
    return [path]


def karpathy(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
    """All splits in one file."""
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


def coco(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
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


def albef(out: Path, samples: Sequence[Sample], image_size: int) -> list[Path]:
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
