"""Image-text pairs from every usual layout. Paths are relative to the file, or to `root`."""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from alignfuse.data.readers.annotations import open_json, open_json_lines
from alignfuse.data.readers.assemble import Assembler
from alignfuse.data.readers.fields import Fields
from alignfuse.data.readers.folders import files_of, open_folder
from alignfuse.data.readers.paths import DataPath, expand, normal_folder
from alignfuse.data.readers.rows import Layout
from alignfuse.data.readers.tables import open_parquet, open_table
from alignfuse.data.readers.tars import open_tar, refuse_compressed
from alignfuse.data.records import PairSet, repeated_ids
from alignfuse.errors import UserError
from alignfuse.wording import counted

logger = logging.getLogger(__name__)

OPENERS: dict[str, Callable[[Path], Layout]] = {
    ".csv": open_table,
    ".tsv": open_table,
    ".txt": open_table,
    ".json": open_json,
    ".jsonl": open_json_lines,
    ".ndjson": open_json_lines,
    ".parquet": open_parquet,
    ".tar": open_tar,
    ".tgz": refuse_compressed,
    ".gz": refuse_compressed,
}


def read_pairs(
    path: DataPath | Sequence[DataPath],
    *,
    root: DataPath | None = None,
    image_field: str | None = None,
    caption_field: str | None = None,
    id_field: str | None = None,
    split_field: str | None = None,
) -> PairSet:
    """The records of a file, a folder, a glob or brace range of files, or several of these put together.

    Rows of one image become one record. Fields are found by their usual names unless named; dots reach into objects
    (`captions.de`). Rows that cannot be used are listed in `problems` and warned of once; image files are not opened.
    Raises UserError where a path or a column does not exist, the layout is unknown, or no pair is found.
    """
    fields = Fields(image=image_field, caption=caption_field, id=id_field, split=split_field)
    pairs = parse_pairs(path, root=root, fields=fields)
    if pairs.problems:
        logger.warning(
            "%s: problems in %d of %s, the first: %s (`alignfuse data check` lists them)",
            pairs.path,
            len({problem.row for problem in pairs.problems}),
            counted(pairs.rows, "row"),
            pairs.problems[0],
        )
    if pairs.repeated_ids:
        logger.warning(
            "%s: %s, such as %s: files of one id count as one image (see --id-field)",
            pairs.path,
            repeated_ids(pairs),
            pairs.repeated_ids[0],
        )
    return pairs


def parse_pairs(path: DataPath | Sequence[DataPath], *, root: DataPath | None, fields: Fields) -> PairSet:
    """As `read_pairs`, without warnings."""
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise UserError("no data: give at least one file or folder")
    folder = None if root is None else normal_folder(root)
    files = [
        file for each in paths for found in expand(each) for file in (files_of(found) if found.is_dir() else [found])
    ]
    assembler = Assembler(fields)
    formats = []
    for file in files:
        layout = open_layout(file)
        formats.append(layout.format)
        base = folder or normal_folder(file if file.is_dir() else file.parent)
        for item in layout.rows:
            assembler.add(item, base)
    return assembler.finish(Path(paths[0]), formats)


def open_layout(path: Path) -> Layout:
    """The layout of one file, or of a folder of images. Raises UserError for a suffix that no reader knows."""
    if path.is_dir():
        return open_folder(path)
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        raise UserError(f"{path}: unknown kind of data file; known are folders and {', '.join(OPENERS)}")
    return opener(path)
