"""File names as other systems write them, and names that stand for several files."""

from pathlib import Path

import pytest

from alignfuse.data.readers.paths import expand, is_web_address, local_path, place_under
from alignfuse.errors import UserError


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("images/a b.png", "images/a b.png"),
        ("images\\sub\\a.png", "images/sub/a.png"),
        ("D:\\a b\\x.tar", "D:/a b/x.tar"),
        ("\\\\server\\share\\x.png", "//server/share/x.png"),
        ("file:///data/a%20b.png", "/data/a b.png"),
        ("file://localhost/data/a.png", "/data/a.png"),
        ("file:///D:/a%20b/x.tar", "D:/a b/x.tar"),
        ("file://server/share/x.png", "//server/share/x.png"),
        ("file:///data/what%3F.png", "/data/what?.png"),
        ("100%20.png", "100%20.png"),  # only URLs are unquoted
        ("ünï/猫 #1.png", "ünï/猫 #1.png"),
        ("file:///data/no#1.png", "/data/no#1.png"),
    ],
)
def test_local_path(text: str, path: str) -> None:
    assert local_path(text) == path


@pytest.mark.parametrize(
    ("path", "placed"),
    [
        ("a.png", "/data/a.png"),
        ("./sub/../a.png", "/data/a.png"),
        ("/other/a.png", "/other/a.png"),
        ("D:/x/a.png", "D:/x/a.png"),
        ("a:b.png", "/data/a:b.png"),  # a drive is followed by a slash
        ("../a.png", "/a.png"),
    ],
)
def test_place_under(path: str, placed: str) -> None:
    assert place_under(Path("/data"), path) == placed


def test_web_addresses_are_told_from_drives_and_files() -> None:
    assert is_web_address("https://example.org/a.png")
    assert is_web_address("s3://bucket/a.png")
    assert not is_web_address("D:/a.png")
    assert not is_web_address("file:///a.png")
    assert not is_web_address("a/b.png")


def test_expand_brace_range_glob_and_plain_names(tmp_path: Path) -> None:
    for number in range(9, 12):
        (tmp_path / f"s-{number:06d}.tar").touch()
    (tmp_path / "odd [name] {1..2}.tar").touch()
    names = [tmp_path / "s-000009.tar", tmp_path / "s-000010.tar", tmp_path / "s-000011.tar"]
    assert expand(f"{tmp_path}/s-{{000009..000011}}.tar") == names
    assert expand(str(tmp_path / "s-*.tar")) == names
    assert expand(names[1].as_uri()) == [names[1]]
    assert expand(tmp_path / "odd [name] {1..2}.tar") == [tmp_path / "odd [name] {1..2}.tar"]


def test_expand_two_ranges(tmp_path: Path) -> None:
    for name in ("a1-01", "a1-02", "a2-01", "a2-02"):
        (tmp_path / name).touch()
    assert [path.name for path in expand(f"{tmp_path}/a{{1..2}}-{{01..02}}")] == ["a1-01", "a1-02", "a2-01", "a2-02"]


def test_expand_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "s-0.tar").touch()
    with pytest.raises(UserError, match=r"2 of 3 files missing, the first is .*s-1\.tar"):
        expand(f"{tmp_path}/s-{{0..2}}.tar")
    with pytest.raises(UserError, match=r"nothing\.csv: no such file"):
        expand(tmp_path / "nothing.csv")
    with pytest.raises(UserError, match="download it first"):
        expand("https://example.org/pairs.csv")
