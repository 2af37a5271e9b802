"""What can be embedded and searched: images of a folder or of a data set, or its captions; each with a JSON record."""

import os
from dataclasses import dataclass
from pathlib import Path

from alignfuse.data.readers import read_pairs
from alignfuse.data.readers.folders import files_of
from alignfuse.data.readers.paths import IMAGE_SUFFIXES
from alignfuse.data.records import ImageSource, Record, TarMember
from alignfuse.errors import UserError

JsonRecord = dict[str, object]


@dataclass(frozen=True)
class Sources:
    """Images or texts, and what is written of each into the ids of an index."""

    items: list[ImageSource] | list[str]
    records: list[JsonRecord]


def images_of_folder(folder: Path) -> Sources:
    """Every image file under a folder, sorted; nothing hidden."""
    files = [
        Path(place, name)
        for place, folders, names in os.walk(folder)
        for name in names
        if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith(".")
    ]
    if not files:
        raise UserError(f"{folder}: no image files there ({', '.join(sorted(IMAGE_SUFFIXES))})")
    images: list[ImageSource] = [*sorted(files)]
    return Sources(images, [{"id": str(Path(str(image)).relative_to(folder)), **located(image)} for image in images])


def images_of_pairs(records: list[Record]) -> Sources:
    """The images of a data set, with their captions in the record."""
    images = [record.image for record in records]
    return Sources(images, [{"id": r.id, **located(r.image), "captions": list(r.captions)} for r in records])


def texts_of_pairs(records: list[Record]) -> Sources:
    """The captions of a data set, each once for each image it stands under."""
    pairs = [(record, caption) for record in records for caption in record.captions]
    return Sources(
        [caption for _, caption in pairs],
        [{"id": record.id, **located(record.image), "caption": caption} for record, caption in pairs],
    )


def sources(
    path: Path,
    *,
    texts: bool = False,
    root: Path | None = None,
    image_field: str | None = None,
    caption_field: str | None = None,
    id_field: str | None = None,
) -> Sources:
    """What a path holds: the images of a folder without captions, or the images or texts of image-text pairs.

    Whoever names a column or a root, or wants texts, means pairs.
    """
    named = texts or any((root, image_field, caption_field, id_field))
    if path.is_dir() and not named and not _has_pairs(path):
        return images_of_folder(path)
    pairs = read_pairs(path, root=root, image_field=image_field, caption_field=caption_field, id_field=id_field)
    return texts_of_pairs(pairs.records) if texts else images_of_pairs(pairs.records)


def located(image: ImageSource) -> JsonRecord:
    """Where an image is, as JSON."""
    if isinstance(image, TarMember):
        tar = str(image.path.absolute())
        return {"image": image.name, "tar": tar, "offset": image.offset, "size": image.size}
    return {"image": str(image.absolute())}


def image_at(record: JsonRecord) -> ImageSource:
    """The image that `located` described."""
    name, tar, offset, size = (record.get(key) for key in ("image", "tar", "offset", "size"))
    if isinstance(tar, str) and isinstance(offset, int) and isinstance(size, int):
        return TarMember(Path(tar), str(name), offset, size)
    return Path(str(name))


def _has_pairs(folder: Path) -> bool:
    """Whether a reader of pairs finds captions in the folder; a note beside the images makes no pairs of them."""
    try:
        return bool(files_of(folder))
    except UserError:
        return False
