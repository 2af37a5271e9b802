"""Files written whole, readable as the umask says, and refusals before any work."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from alignfuse.errors import UserError
from alignfuse.files import replace_file, replace_files, require_empty, require_folder, writing
from alignfuse.search.index import build, open_index


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o002])
def test_every_file_has_the_mode_that_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    tensors = {"a": torch.ones(2)}
    (tmp_path / ".model.safetensors.partial").touch(0o600)  # left behind by a kill
    with umask(mask):
        replace_file(tmp_path / "model.safetensors", lambda path: save_file(tensors, path))
        replace_file(tmp_path / "state.pt", lambda path: torch.save(tensors, path))
        build(torch.eye(2), [{}, {}], kind="image", model="m").save(tmp_path / "index")
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 4
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~mask}


def test_a_full_disk_keeps_the_old_index_and_is_named(tmp_path: Path) -> None:
    build(torch.eye(2), [{}, {}], kind="image", model="m").save(tmp_path)
    large = build(torch.eye(100), [{}] * 100, kind="image", model="m")
    with (
        room_for(2000),
        pytest.raises(UserError, match=rf"cannot write {tmp_path}/embeddings\.safetensors \(.*GB free"),
    ):
        large.save(tmp_path)
    assert len(open_index(tmp_path, model="m").vectors) == 2
    assert len(os.listdir(tmp_path)) == 2
    with (
        room_for(100),
        pytest.raises(UserError, match=r"cannot write .*ids\.jsonl \(File too large; .*stood there is kept"),
    ):
        large.save(tmp_path)


def test_files_that_belong_together_change_together(tmp_path: Path) -> None:
    def fail(path: Path) -> None:
        raise OSError("no more")

    (tmp_path / "a").write_text("old")
    with pytest.raises(UserError, match=r"cannot write .*/b \(no more; .*GB free\)$"):
        replace_files({tmp_path / "a": lambda path: path.write_text("new"), tmp_path / "b": fail})
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


def test_a_mistake_of_ours_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(KeyError), writing(tmp_path):
        raise KeyError("name")


def test_where_nothing_can_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    require_folder(tmp_path / "new" / "folder")
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(UserError, match="file is a file: give a directory"):
        require_folder(tmp_path / "file")
    with pytest.raises(UserError, match=r"file is a file, so .*/file/below cannot be made"):
        require_folder(tmp_path / "file" / "below")
    with pytest.raises(UserError, match="is not empty: leave it"):
        require_empty(tmp_path, remedy="leave it")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="a folder that nobody can write to, not even root")
def test_a_folder_that_takes_no_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot write into /proc \(.*\): choose another place than /proc/new"):
        require_folder(Path("/proc/new"))
