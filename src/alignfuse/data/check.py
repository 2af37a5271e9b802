"""The check behind `alignfuse data check`: what a data set holds, and what is wrong with it before training starts."""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from alignfuse.data.check_report import CheckReport, SplitSize
from alignfuse.data.ids import KEY_BASE, Identities, normalised
from alignfuse.data.images import ImageError, load_image
from alignfuse.data.readers import parse_pairs
from alignfuse.data.readers.fields import Fields
from alignfuse.data.readers.paths import DataPath, normal_folder
from alignfuse.data.records import PairSet, Problem, Record, repeated_ids
from alignfuse.data.splits import split_records

SAMPLE = 200  # images opened unless all are asked for
CHUNK = 256  # images between two reports of progress

Progress = Callable[[int, int], None]  # images done, images in all


def check(
    path: DataPath | Sequence[DataPath],
    *,
    root: DataPath | None = None,
    image_field: str | None = None,
    caption_field: str | None = None,
    id_field: str | None = None,
    split_field: str | None = None,
    all_images: bool = False,
    progress: Progress = lambda done, total: None,
) -> CheckReport:
    """Reads a data set as training would, looks whether every image file exists, and opens a sample of them or all.

    Raises UserError where `read_pairs` does.
    """
    fields = Fields(image=image_field, caption=caption_field, id=id_field, split=split_field)
    pairs = parse_pairs(path, root=root, fields=fields)
    records = pairs.records
    opened = set(range(0, len(records), 1 if all_images else max(1, len(records) // SAMPLE)))
    problems = [
        *pairs.problems,
        *_outside(records, root),
        *_repeated_captions(records),
        *_images_in_two_splits(records),
        *_image_problems(records, opened, progress),
    ]
    missing = {problem.row for problem in problems if problem.kind == "missing file"}
    found = sum(records[place].row not in missing for place in opened)
    return _report(pairs, problems, found, _notes(pairs, all(record.row in missing for record in records)))


def _outside(records: Sequence[Record], root: DataPath | None) -> Iterator[Problem]:
    """Images that do not lie under the root that the user gave."""
    folder = None if root is None else normal_folder(root)
    for record in records:
        if folder is not None and isinstance(record.image, Path) and not record.image.is_relative_to(folder):
            yield Problem(record.row, "outside the root", f"{record.image} is not under {folder}")


def _repeated_captions(records: Sequence[Record]) -> Iterator[Problem]:
    for record in records:
        for caption, count in Counter(normalised(caption) for caption in record.captions).items():
            if count > 1:
                yield Problem(record.row, "duplicate caption", f"{count} times at one image: {caption:.80}")


def _images_in_two_splits(records: Sequence[Record]) -> Iterator[Problem]:
    """Files of one id that the data puts into different splits; one file in two splits is found by the reader."""
    first: dict[str, Record] = {}
    for record in records:
        other = first.setdefault(record.id, record)
        if record.split != other.split:
            detail = f"id {record.id} is in {record.split!r} here, in {other.split!r} in {other.row}"
            yield Problem(record.row, "two splits", detail)


def _image_problems(records: Sequence[Record], opened: set[int], progress: Progress) -> Iterator[Problem]:
    """Files that are missing or unreadable, and images that have the pixels of an earlier one but another id."""
    owners: dict[bytes, Record] = {}
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(records), CHUNK):
            places = range(start, min(start + CHUNK, len(records)))
            findings = pool.map(lambda place: _inspect(records[place], place in opened), places)
            for record, finding in zip(records[start : places.stop], findings, strict=True):
                if isinstance(finding, Problem):
                    yield finding
                elif finding is not None and (owner := owners.setdefault(finding, record)).id != record.id:
                    yield Problem(record.row, "duplicate image", f"{record.image} has the pixels of {owner.image}")
            progress(places.stop, len(records))


def _inspect(record: Record, opened: bool) -> Problem | bytes | None:
    """What is wrong with an image file, or a digest of its pixels where it is opened."""
    if isinstance(record.image, Path) and not os.path.isfile(record.image):  # False where Path.is_file raises
        return Problem(record.row, "missing file", str(record.image))
    if not opened:
        return None
    try:
        pixels = load_image(record.image)
    except ImageError as error:
        return Problem(record.row, "unreadable image", str(error))
    return hashlib.blake2b(f"{tuple(pixels.shape)}".encode() + pixels.numpy().tobytes(), digest_size=16).digest()


def _notes(pairs: PairSet, all_missing: bool) -> list[str]:
    notes = []
    if all_missing:
        notes.append("no image file exists: paths are relative to the data file; name another folder with --root")
    if pairs.repeated_ids:
        notes.append(f"{repeated_ids(pairs)} ({pairs.repeated_ids[0]}): files of one id count as one image")
    if pairs.languages:
        notes.append(f"another language is chosen with --caption-field, such as {next(iter(pairs.languages))}")
    return notes


def _report(pairs: PairSet, problems: list[Problem], opened: int, notes: list[str]) -> CheckReport:
    records = pairs.records
    identities = Identities.of(records)
    counts = [len(record.captions) for record in records]
    return CheckReport(
        path=str(pairs.path),
        format=pairs.format,
        rows=pairs.rows,
        fields=pairs.fields,
        columns=pairs.columns,
        languages=pairs.languages,
        images=len(records),
        captions=sum(counts),
        fewest_captions=min(counts),
        most_captions=max(counts),
        distinct_captions=len({number for numbers in identities.caption_ids for number in numbers}),
        shared_captions=len(set((identities.shared % KEY_BASE).tolist())),
        splits={
            name: SplitSize(images=len(part), captions=sum(len(record.captions) for record in part))
            for name, part in split_records(records).items()
        },
        split_by="column" if any(record.split is not None for record in records) else "hash of the id",
        opened=opened,
        problems=problems,
        notes=notes,
    )
