"""What a path holds for embedding and search: a folder of images, or pairs."""

from pathlib import Path

import pytest
from PIL import Image

from alignfuse.errors import UserError
from alignfuse.search.sources import image_at, sources


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "my photos"
    (folder / "2024").mkdir(parents=True)
    for name in ("b.PNG", "a.png", "2024/c.png"):
        Image.new("RGB", (8, 8)).save(folder / name)
    (folder / ".hidden.png").touch()
    return folder


def ids(path: Path, **options: object) -> list[object]:
    return [record["id"] for record in sources(path, **options).records]  # type: ignore[arg-type]


def test_a_folder_of_images_with_notes_beside_them(photos: Path) -> None:
    """A text that belongs to no image makes no captions."""
    (photos / "README.txt").write_text("my holidays", encoding="utf-8")
    found = sources(photos)
    assert ids(photos) == ["2024/c.png", "a.png", "b.PNG"]
    assert [image_at(record) for record in found.records] == found.items


def test_a_folder_with_captions_is_pairs(photos: Path) -> None:
    (photos / "captions.csv").write_text("image,caption\na.png,a boat\na.png,a red boat\n", encoding="utf-8")
    assert [record["captions"] for record in sources(photos).records] == [["a boat", "a red boat"]]
    assert sources(photos, texts=True).items == ["a boat", "a red boat"]


def test_columns_by_name(photos: Path) -> None:
    table = photos / "table.csv"
    table.write_text("picture,title,number\na.png,a boat,7\nb.PNG,a tree,8\n", encoding="utf-8")
    with pytest.raises(UserError, match="--image-field"):
        sources(table)
    named = {"image_field": "picture", "caption_field": "title", "id_field": "number"}
    assert ids(table, **named) == ["7", "8"]


def test_nothing_to_embed_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no image files there"):
        sources(tmp_path)
    with pytest.raises(UserError, match="no such file or folder"):
        sources(tmp_path / "absent")
