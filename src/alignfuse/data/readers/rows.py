"""The common currency of all layouts: a row of named values, and where it stands."""

from collections.abc import Iterator
from typing import NamedTuple

from alignfuse.data.records import Problem


class Row(NamedTuple):
    """One entry of a file. The image is a path as text or a TarMember, captions are a text or a list of texts."""

    place: str  # "pairs.csv, row 12"
    values: dict[str, object]


class Layout(NamedTuple):
    """An opened file: the name of its format, and its rows, each read or found broken."""

    format: str
    rows: Iterator[Row | Problem]


def lookup(value: object, field: str) -> object:
    """The value of a field, None where there is none. Dots reach into objects, and into each object of a list."""
    if isinstance(value, list):
        return [lookup(item, field) for item in value]
    if not isinstance(value, dict):
        return None
    if field in value:
        return value[field]
    head, dot, rest = field.partition(".")
    return lookup(value[head], rest) if dot and head in value else None
