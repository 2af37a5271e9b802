"""Tables: CSV with any usual delimiter, and parquet."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from alignfuse.data.readers.fields import USUAL_NAMES
from alignfuse.data.readers.lines import utf8_lines
from alignfuse.data.readers.rows import Layout, Row
from alignfuse.data.records import Problem
from alignfuse.errors import UserError
from alignfuse.wording import counted

if TYPE_CHECKING:
    from pyarrow import DataType
    from pyarrow.parquet import ParquetFile

DELIMITERS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar"}


def open_table(path: Path) -> Layout:
    """A text table whose first row names the columns; the delimiter is found from that row."""
    header = next((line for line in utf8_lines(path) if line.strip()), "")
    try:
        delimiter = max(DELIMITERS, key=lambda mark: _recognised(header, mark))
    except csv.Error as error:  # such as lines that end with CR alone
        raise UserError(f"{path}: its first line is no row of a table ({error}); save it as 'CSV UTF-8'") from error
    return Layout(f"CSV ({DELIMITERS[delimiter]})", _table_rows(path, delimiter))


def _recognised(header: str, delimiter: str) -> tuple[int, int]:
    """How well a delimiter explains the header: columns with a usual name, columns in all."""
    columns = [column.strip().lower() for column in next(csv.reader([header], delimiter=delimiter))]
    usual = {name for names in USUAL_NAMES.values() for name in names}
    return len(usual & set(columns)), len(columns)


def _table_rows(path: Path, delimiter: str) -> Iterator[Row | Problem]:
    """Rows are counted as a spreadsheet counts them: the header is row 1."""
    table = csv.reader(utf8_lines(path), delimiter=delimiter, strict=True)
    columns: list[str] = []
    number = 0
    while True:
        number += 1
        place = f"{path.name}, row {number}"
        try:
            cells = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(
                place, "unreadable row", f'{error}; a text that holds quotes is quoted, and they are doubled ("")'
            )
            continue
        if not any(cell.strip() for cell in cells):
            continue
        if not columns:
            columns = [cell.strip() for cell in cells]
        elif any(cell.strip() for cell in cells[len(columns) :]):
            reason = (
                f"{counted(len(cells), 'cell')}, {counted(len(columns), 'column')}; "
                f"a text that holds a {DELIMITERS[delimiter]} is quoted"
            )
            yield Problem(place, "unreadable row", reason)
        else:
            yield Row(place, dict(zip(columns, cells, strict=False)))


def open_parquet(path: Path) -> Layout:
    """A parquet file with the paths of the images; needs pyarrow. Cells of binary columns are given as b"", unread."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise UserError(f"{path}: parquet files need pyarrow: pip install 'alignfuse[parquet]'") from error
    try:
        return Layout("parquet", _parquet_rows(path.name, parquet.ParquetFile(path)))
    except ArrowInvalid as error:
        raise UserError(f"{path}: not a readable parquet file ({error})") from error


def _parquet_rows(name: str, file: "ParquetFile") -> Iterator[Row]:
    from pyarrow import types

    def is_binary(kind: "DataType") -> bool:
        if types.is_struct(kind):  # {bytes, path}: an image of a Hugging Face data set
            return any(is_binary(kind.field(index).type) for index in range(kind.num_fields))
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    binary = [field.name for field in file.schema_arrow if is_binary(field.type)]
    readable = [field.name for field in file.schema_arrow if not is_binary(field.type)]
    number = 0
    for batch in file.iter_batches(columns=readable):
        for values in batch.to_pylist():
            number += 1
            yield Row(f"{name}, row {number}", values | dict.fromkeys(binary, b""))
