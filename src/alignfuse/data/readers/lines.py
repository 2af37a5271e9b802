"""Text files are UTF-8."""

from collections.abc import Iterator
from pathlib import Path

from alignfuse.errors import UserError


def utf8_lines(path: Path) -> Iterator[str]:
    """Lines with their ends, without a byte order mark. Raises UserError naming the first line that is not UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield decode(line, f"{path}, line {number}")


def utf8_text(path: Path) -> str:
    """A whole file. Raises UserError where it is not UTF-8."""
    return decode(path.read_bytes(), str(path))


def decode(text: bytes, place: str) -> str:
    """UTF-8 with or without a byte order mark. Raises UserError naming `place`."""
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte 0x{text[error.start]:02x}"
        raise UserError(f"{place}: not UTF-8 ({found}); save the file as UTF-8 (in Excel: 'CSV UTF-8')") from error
