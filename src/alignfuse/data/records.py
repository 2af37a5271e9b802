"""What a reader makes of a user's files: one record per image."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from alignfuse.wording import counted


@dataclass(frozen=True, slots=True)
class TarMember:
    """A file inside an uncompressed tar, read by seeking to `offset` and reading `size` bytes."""

    path: Path  # of the tar
    name: str  # of the member
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.path}, member {self.name}"


ImageSource = Path | TarMember


@dataclass(frozen=True, slots=True)
class Record:
    """One image with all its captions: at least one, none empty, white space collapsed to single spaces."""

    image: ImageSource
    captions: tuple[str, ...]
    id: str  # records that share an id count as the same image
    split: str | None  # as the data writes it
    row: str  # where the image was first named, for messages: "pairs.csv, row 12"


ProblemKind = Literal[
    "unreadable row",
    "no image",
    "web address",
    "no caption",
    "empty caption",
    "two splits",
    "missing file",
    "unreadable image",
    "outside the root",
    "duplicate caption",
    "duplicate image",
]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with one row."""

    row: str
    kind: ProblemKind
    detail: str

    def __str__(self) -> str:
        return f"{self.row}: {self.kind}: {self.detail}"


@dataclass(frozen=True, kw_only=True)
class PairSet:
    """The records of a data set, in file order, with what was understood and what was left out."""

    records: list[Record]
    format: str
    path: Path  # as given; the first one of several
    problems: list[Problem]  # rows or captions that were left out, or contradict others
    rows: int  # entries read
    columns: list[str]  # every column or field found
    fields: Mapping[str, str]  # which column served as image, caption, id and split
    languages: Mapping[str, int]  # "captions.de" -> rows that have it, where a caption field is a map of languages
    repeated_ids: list[str]  # ids that several image files share: they count as one image


def repeated_ids(pairs: PairSet) -> str:
    """How many ids several files share, in words."""
    count = len(pairs.repeated_ids)
    return f"{counted(count, 'id')} {'stands' if count == 1 else 'stand'} for several image files"
