"""File names as users and other systems write them."""

import os
import re
from collections.abc import Iterator
from glob import glob
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urlsplit

from alignfuse.errors import UserError
from alignfuse.wording import counted

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"}
    | {".avif", ".jp2", ".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".ico"}
)
DataPath = str | os.PathLike[str]

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")  # at least two letters: one is a Windows drive


def local_path(text: str) -> str:
    """A path with forward slashes from a POSIX path, a Windows path (drive letter, share) or a file:// URL.

    A Windows drive stays at the front (`D:/a b/x.tar`), also where this machine has none.
    """
    if text[:7].lower() == "file://":
        url = urlsplit(text, allow_fragments=False)
        host = "" if url.netloc.lower() in ("", "localhost") else f"//{url.netloc}"
        text = host + unquote(f"{url.path}?{url.query}" if url.query else url.path)
        text = text.removeprefix("/") if _DRIVE.match(text, 1) else text  # file:///D:/x
    return text.replace("\\", "/")


def is_web_address(text: str) -> bool:
    """True for http://, s3:// and the like: what cannot be opened as a local file."""
    return _URL.match(text) is not None and text[:7].lower() != "file://"


def place_under(folder: Path, path: str) -> str:
    """`path` taken relative to `folder` unless it is absolute here or on Windows; `.` and `..` are resolved as text."""
    return os.path.normpath(path if _DRIVE.match(path) else os.path.join(folder, path))


def normal_folder(path: DataPath) -> Path:
    """A folder as the images' paths begin with it. Raises UserError where there is none."""
    folder = Path(local_path(os.fspath(path)))
    if not folder.is_dir():
        raise UserError(f"{path}: no such folder")
    return Path(os.path.normpath(folder))


def expand(path: DataPath) -> list[Path]:
    """The files or folders that a path names: itself, a brace range (`{000000..000127}`) or a glob, in sorted order.

    Raises UserError where nothing is found, or a number of a range is missing.
    """
    text = os.fspath(path)
    whole = Path(text if os.path.exists(text) else local_path(text))
    if whole.exists():
        return [whole]
    if is_web_address(text):
        raise UserError(f"{text}: data is read from local files; download it first and give the local path")
    names = list(_fill_ranges(str(whole)))
    found = [Path(match) for name in names for match in sorted(glob(name, recursive=True))]
    if not found:
        raise UserError(f"{text}: no such file or folder")
    missing = [name for name in names if not glob(name)]
    if missing:
        raise UserError(f"{text}: {len(missing)} of {counted(len(names), 'file')} missing, the first is {missing[0]}")
    return found


def _fill_ranges(text: str) -> Iterator[str]:
    """Every name of a text with brace ranges; numbers keep the width of the range's start."""
    pieces = _RANGE.split(text)  # text, first, last, text, first, last, ..., text
    ranges = [
        [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        for first, last in zip(pieces[1::3], pieces[2::3], strict=True)
    ]
    for numbers in product(*ranges):
        yield "".join(part for pair in zip(pieces[::3], (*numbers, ""), strict=True) for part in pair)
