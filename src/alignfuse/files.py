"""Writing where a user said: whole files or none of them, and an early no where nothing can be written."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from alignfuse.errors import UserError, one_line

Write = Callable[[Path], object]


def replace_file(path: Path, write: Write) -> None:
    """Write a file beside its place, force it to disk, then move it there in one step."""
    replace_files({path: write})


def replace_files(writers: Mapping[Path, Write]) -> None:
    """Files that belong together: all are on the disk before the first takes its place."""
    partials = {path: path.with_name(f".{path.name}.partial") for path in writers}
    for path, write in writers.items():
        try:
            _write_partial(partials[path], write)
        except (OSError, RuntimeError, SafetensorError) as error:  # torch reports a full disk as RuntimeError
            for partial in partials.values():
                with suppress(OSError):
                    partial.unlink()
            raise _cannot_write(path, error, "; what stood there is kept" if path.exists() else "") from error
    with writing(next(iter(writers))):
        for path, partial in partials.items():
            os.replace(partial, path)


def _write_partial(partial: Path, write: Write) -> None:
    partial.parent.mkdir(parents=True, exist_ok=True)
    partial.unlink(missing_ok=True)
    partial.touch()
    mode = partial.stat().st_mode  # what the umask leaves; safetensors makes files that only their owner reads
    write(partial)
    partial.chmod(mode)
    with partial.open("rb") as file:
        os.fsync(file.fileno())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failure of the system while files are written at or below `path` into a message that names where."""
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: Exception, kept: str = "") -> UserError:
    place = Path(error.filename) if isinstance(error, OSError) and isinstance(error.filename, str) else path
    reason = error.strerror if isinstance(error, OSError) and error.strerror else one_line(error)
    named = path if place.name.endswith(".partial") else place
    free = shutil.disk_usage(_existing(path)).free / 1e9
    return UserError(f"cannot write {named} ({reason}; {free:.1f} GB free){kept}")


def require_folder(path: Path) -> None:
    """UserError where no folder can be made and written into at `path`. Leaves nothing behind."""
    if os.path.exists(path) and not path.is_dir():
        raise UserError(f"{path} is a file: give a directory")
    _require_room(path)


def require_empty(path: Path, *, remedy: str, overwrite: bool = False) -> None:
    """UserError also where the folder holds anything that is not to be overwritten; `remedy` says what to do then."""
    require_folder(path)
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise UserError(f"{path} is not empty: {remedy}")


def require_new(path: Path, *, remedy: str, overwrite: bool = False) -> None:
    """UserError where no file can be written, and where there is one that is not to be overwritten."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file")
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"{path} exists: {remedy}")
    _require_room(path.absolute().parent, path)


def _require_room(folder: Path, path: Path | None = None) -> None:
    """UserError where `path`, the folder or something in it, cannot be made."""
    place, path = _existing(folder), path or folder
    if not place.is_dir():
        raise UserError(f"{place} is a file, so {path} cannot be made: choose another place")
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise UserError(f"cannot write into {place} ({error.strerror}): choose another place than {path}") from error


def _existing(path: Path) -> Path:
    """The path or the nearest folder above it that is there."""
    place = path.absolute()
    while not os.path.exists(place):
        place = place.parent
    return place
