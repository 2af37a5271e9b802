"""JSON annotations: lines, lists (ours, ALBEF and BLIP), Karpathy splits and COCO captions."""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from alignfuse.data.readers.lines import utf8_lines, utf8_text
from alignfuse.data.readers.rows import Layout, Row, lookup
from alignfuse.data.records import Problem
from alignfuse.errors import UserError


def open_json_lines(path: Path) -> Layout:
    """One object a line."""
    return Layout("JSON lines", _line_rows(path))


def _line_rows(path: Path) -> Iterator[Row | Problem]:
    for number, line in enumerate(utf8_lines(path), start=1):
        if line.strip():
            place = f"{path.name}, row {number}"
            try:
                yield _entry(place, json.loads(line))
            except (json.JSONDecodeError, RecursionError) as error:
                yield Problem(place, "unreadable row", f"not JSON: {error}")


def open_json(path: Path) -> Layout:
    """A JSON document of any layout that this module knows; told apart by its content."""
    try:
        document = json.loads(utf8_text(path))
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # a second document follows the first: JSON lines under another name
            return open_json_lines(path)
        raise UserError(f"{path}: not JSON: {error}") from error
    except RecursionError as error:
        raise UserError(f"{path}: nested too deeply for data") from error
    if isinstance(document, list):
        return Layout("JSON list", _list_rows(path.name, document))
    images = document.get("images") if isinstance(document, dict) else None
    if isinstance(images, list) and isinstance(document.get("annotations"), list):
        return Layout("COCO captions", _coco_rows(path, images, document["annotations"]))
    if isinstance(images, list) and any(isinstance(image, dict) and "sentences" in image for image in images):
        return Layout("Karpathy split", _karpathy_rows(path.name, images))
    found = (
        f"an object that begins with the key {next(iter(document), '')!r}" if isinstance(document, dict) else "no list"
    )
    raise UserError(f"{path}: {found}; expected a list of objects, JSON lines, a Karpathy split or COCO captions")


def _entry(place: str, entry: object) -> Row | Problem:
    return Row(place, entry) if isinstance(entry, dict) else Problem(place, "unreadable row", "not an object")


def _list_rows(name: str, entries: Iterable[object]) -> Iterator[Row | Problem]:
    for number, entry in enumerate(entries, start=1):
        yield _entry(f"{name}, row {number}", entry)


def _karpathy_rows(name: str, images: list[object]) -> Iterator[Row | Problem]:
    """File names are unique where `imgid` starts at 0 in every file, so that no id is taken from there."""
    for row in _list_rows(name, images):
        if isinstance(row, Row):
            folder, file = row.values.get("filepath"), row.values.get("filename")
            image = f"{folder}/{file}" if folder else file
            captions = lookup(row.values, "sentences.raw")
            row = Row(row.place, {"image": image, "captions": captions, "split": row.values.get("split")})
        yield row


def _coco_rows(path: Path, images: list[object], annotations: list[object]) -> Iterator[Row | Problem]:
    """Annotations of one image stand anywhere in the file."""
    if annotations and not any("caption" in annotation for annotation in annotations if isinstance(annotation, dict)):
        found = f"they hold {', '.join(annotations[0])}" if isinstance(annotations[0], dict) else "they are no objects"
        raise UserError(f"{path}: annotations without captions ({found}); use the file captions_*.json")
    captions: dict[object, list[object]] = defaultdict(list)
    for annotation in annotations:
        captions[lookup(annotation, "image_id")].append(lookup(annotation, "caption"))
    for image in images:
        identity = lookup(image, "id")
        values = {"image": lookup(image, "file_name"), "captions": captions.pop(identity, []), "id": identity}
        yield Row(f"{path.name}, image {identity}", values)
    for identity in captions:
        place = f"{path.name}, image {identity}"
        yield Problem(place, "no image", "captions of an image that is not in the list of images")
