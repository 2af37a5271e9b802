"""Webdataset tars: the files of one sample stand together and share their name up to the first dot."""

import json
import tarfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from alignfuse.data.readers.paths import IMAGE_SUFFIXES
from alignfuse.data.readers.rows import Layout, Row
from alignfuse.data.records import Problem, TarMember
from alignfuse.errors import UserError

TEXT_SUFFIXES = frozenset({"txt", "text", "caption"})


def open_tar(path: Path) -> Layout:
    """An uncompressed tar: headers and texts are read once, images later by offset. Refuses a compressed one."""
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            refuse_compressed(path)
    return Layout("webdataset tar", _sample_rows(path))


def refuse_compressed(path: Path) -> Layout:
    """A gzipped tar has no offsets to seek to."""
    plain = f"{path.name.removesuffix('.gz').removesuffix('.tgz').removesuffix('.tar')}.tar"
    raise UserError(f"{path}: a compressed tar cannot be read image by image; unpack it: gunzip -c {path} > {plain}")


def _sample_rows(path: Path) -> Iterator[Row | Problem]:
    with path.open("rb") as file:
        for _, group in groupby(_members(path), key=_sample_name):
            items = list(group)
            members = [item for item in items if isinstance(item, TarMember)]
            yield from (item for item in items if isinstance(item, Problem))
            if members:
                yield _sample(members, file)


def _members(path: Path) -> Iterator[TarMember | Problem]:
    """The files of a tar in order; one that is cut short ends with a problem."""
    size = path.stat().st_size
    try:
        with tarfile.open(path, "r:") as tar:
            for entry in tar:
                if entry.offset_data + entry.size > size:
                    raise tarfile.ReadError(f"ends inside {entry.name}")
                if entry.isfile():
                    yield TarMember(path, entry.name, entry.offset_data, entry.size)
    except tarfile.ReadError as error:
        yield Problem(path.name, "unreadable row", f"damaged tar: {error}")


def _split_name(name: str) -> tuple[str, str]:
    """Name of the sample with its folder, and what follows the first dot in lower case."""
    folder, slash, file = name.rpartition("/")
    key, _, suffix = file.partition(".")
    return folder + slash + key, suffix.lower()


def _sample_name(item: TarMember | Problem) -> str | None:
    return _split_name(item.name)[0] if isinstance(item, TarMember) else None


def _sample(members: Iterable[TarMember], file: BinaryIO) -> Row | Problem:
    """The fields of the .json, the texts of .txt and the like, and the images: the first one as `image`."""
    values: dict[str, object] = {}
    files: dict[str, object] = {}
    place = ""
    for member in members:
        name, suffix = _split_name(member.name)
        place = f"{member.path.name}, {name}"
        try:
            if f".{suffix}" in IMAGE_SUFFIXES:
                files |= {suffix: member, "image": files.get("image", member)}
            elif suffix == "json":
                document = json.loads(_text(member, file))
                values |= document if isinstance(document, dict) else {suffix: document}
            else:
                files[suffix] = _text(member, file) if suffix in TEXT_SUFFIXES else None
        except ValueError as error:
            return Problem(place, "unreadable row", f".{suffix}: {error}")
    return Row(place, values | files)


def _text(member: TarMember, file: BinaryIO) -> str:
    file.seek(member.offset)
    return file.read(member.size).decode("utf-8-sig")
