"""A folder: a captions file beside the images, tars, or images with a text file each."""

import os
from collections.abc import Iterator
from pathlib import Path

from alignfuse.data.readers.lines import utf8_text
from alignfuse.data.readers.paths import IMAGE_SUFFIXES
from alignfuse.data.readers.rows import Layout, Row
from alignfuse.data.records import Problem
from alignfuse.errors import UserError

TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet"})
USUAL_STEMS = ("captions", "metadata", "pairs", "annotations")


def files_of(folder: Path) -> list[Path]:
    """What to read of a folder, the first that is there: a captions file under a usual name, tars, the folder itself
    where images have text files, parquet files, any other one captions file. Raises UserError if that is undecided.
    """
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    tables = [file for file in files if file.suffix.lower() in TABLE_SUFFIXES]
    captions_txt = [file for file in files if file.name.lower() == "captions.txt"]
    for stem in USUAL_STEMS:
        if named := [file for file in tables + captions_txt if file.stem.lower() == stem]:
            return named[:1]
    if tars := [file for file in files if file.suffix.lower() == ".tar"]:
        return tars
    if any(text for _, text in _images(folder)):
        return [folder]
    parquets = [file for file in tables if file.suffix.lower() == ".parquet"]
    if parquets or len(tables) == 1:
        return parquets or tables
    found = (
        f"which file holds the captions: {', '.join(file.name for file in tables)}?" if tables else "no captions found"
    )
    raise UserError(
        f"{folder}: {found}; give the path of a CSV, JSON, JSON lines or parquet file (and --root for the images), "
        "a folder of tars, or images with a .txt file beside each"
    )


def open_folder(folder: Path) -> Layout:
    """Images at any depth; each non-empty line of the .txt file of the same name is one caption."""
    return Layout("folder of images with .txt files", _image_rows(folder))


def _image_rows(folder: Path) -> Iterator[Row | Problem]:
    for image, text in _images(folder):
        name = image.relative_to(folder).as_posix()
        try:
            if text is None:
                yield Problem(name, "no caption", "no .txt file of the same name")
            else:
                lines = utf8_text(text).split("\n")
                yield Row(name, {"image": name, "captions": [line for line in lines if line.strip()] or ""})
        except UserError as error:
            yield Problem(name, "unreadable row", str(error))


def _images(folder: Path) -> Iterator[tuple[Path, Path | None]]:
    """Each image under a folder, in sorted order, and the text file beside it; nothing hidden."""
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        texts = {name[: -len(".txt")]: name for name in files if name.lower().endswith(".txt")}
        for name in sorted(files):
            stem, suffix = os.path.splitext(name)
            if suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield Path(place, name), Path(place, texts[stem]) if stem in texts else None
