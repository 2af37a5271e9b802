"""`alignfuse data check`: what was understood, and what is wrong with which row."""

import json
from pathlib import Path

import pytest
from PIL import Image

from alignfuse.data.check import check
from alignfuse.errors import UserError


@pytest.fixture
def faulty(tmp_path: Path) -> Path:
    """Four readable images, two of them with the same pixels, and every fault that a check finds."""
    for name, colour in (("a", "red"), ("b", "blue"), ("c", "green"), ("twin", "red")):
        Image.new("RGB", (20, 30), colour).save(tmp_path / f"{name}.png")
    whole = (tmp_path / "a.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "empty.png").touch()
    (tmp_path / "text.jpg").write_text("not an image")
    (tmp_path / "pairs.csv").write_text(
        "image,caption,sku,note\n"
        "a.png,A red square,1,x\n"
        "b.png,a blue  square,2,\n"
        "a.png,a RED square,1,\n"
        "c.png,,3,\n"
        "c.png,a green square,3,\n"
        "twin.png,a red square,4,\n"
        "cut.png,half,5,\n"
        "empty.png,nothing,6,\n"
        "text.jpg,words,7,\n"
        "gone.png,missing,8,\n"
    )
    return tmp_path / "pairs.csv"


def test_every_fault_is_found_in_its_row(faulty: Path) -> None:
    report = check(faulty, all_images=True)
    assert [(problem.kind, problem.row) for problem in report.problems] == [
        ("empty caption", "pairs.csv, row 5"),
        ("duplicate caption", "pairs.csv, row 2"),
        ("duplicate image", "pairs.csv, row 7"),
        ("unreadable image", "pairs.csv, row 8"),
        ("unreadable image", "pairs.csv, row 9"),
        ("unreadable image", "pairs.csv, row 10"),
        ("missing file", "pairs.csv, row 11"),
    ]
    assert report.problems[-1].detail == str(faulty.parent / "gone.png")


def test_what_was_understood(faulty: Path) -> None:
    report = check(faulty, id_field="sku")
    assert (report.format, report.rows, report.images, report.captions) == ("CSV (comma)", 10, 8, 9)
    assert (report.fewest_captions, report.most_captions) == (1, 2)
    assert report.fields == {"image": "image", "caption": "caption", "id": "sku"}
    assert report.columns == ["image", "caption", "sku", "note"]
    assert (report.distinct_captions, report.shared_captions) == (7, 1)
    assert report.split_by == "hash of the id"
    assert sum(size.images for size in report.splits.values()) == 8
    assert sum(size.captions for size in report.splits.values()) == 9


def test_report_as_text_and_as_json(faulty: Path) -> None:
    report = check(faulty)
    text = str(report)
    assert text.startswith(f"{faulty}: CSV (comma), 10 rows")
    assert "image from image, caption from caption; others with --image-field, --caption-field" in " ".join(
        text.split()
    )
    assert "image, caption, sku, note" in text
    assert f"missing file: 1\n    pairs.csv, row 11: {faulty.parent / 'gone.png'}" in text
    assert "problems: 7" in text
    data = json.loads(json.dumps(report.to_dict()))
    assert data["problem_count"] == 7
    assert data["problem_counts"]["unreadable image"] == 3
    assert data["problems"][0] == {"row": "pairs.csv, row 5", "kind": "empty caption", "detail": "1 of 1"}


def test_a_sample_is_opened_unless_all_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(10):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{number}.png")
    (tmp_path / "5.png").write_bytes(b"")
    lines = [f"{number}.png,caption {number},one" for number in range(10)]
    (tmp_path / "pairs.csv").write_text("\n".join(["image,caption,id", *lines]))
    monkeypatch.setattr("alignfuse.data.check.SAMPLE", 5)  # every second image
    calls: list[tuple[int, int]] = []
    report = check(tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert (report.opened, report.problems) == (5, [])
    assert calls[-1] == (10, 10)
    report = check(tmp_path, all_images=True)
    assert report.opened == 10
    assert [(problem.kind, problem.row) for problem in report.problems] == [("unreadable image", "pairs.csv, row 7")]


def test_images_outside_the_root(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("in/a.png", "b.png"):
        Image.new("RGB", (4, 4), "red" if name == "b.png" else "blue").save(tmp_path / name)
    (tmp_path / "pairs.csv").write_text("image,caption\na.png,one\n../b.png,two\n")
    report = check(tmp_path / "pairs.csv", root=tmp_path / "in")
    assert [(problem.kind, problem.row) for problem in report.problems] == [("outside the root", "pairs.csv, row 3")]


def test_files_of_one_image_in_two_splits(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.png")
    (tmp_path / "pairs.csv").write_text("image,caption,id,split\na.png,one,7,train\nb.png,two,7,test\n")
    report = check(tmp_path)
    assert [(problem.kind, problem.row) for problem in report.problems] == [("two splits", "pairs.csv, row 3")]
    assert "1 id stands for several image files (7)" in report.notes[0]
    assert report.split_by == "column"


def test_all_files_missing_points_at_the_root(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("image,caption\na.png,one\nb.png,two\n")
    report = check(tmp_path)
    assert [problem.kind for problem in report.problems] == ["missing file"] * 2
    assert report.opened == 0
    assert "name another folder with --root" in str(report)


def test_long_lists_are_cut_in_the_text_alone(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("image,caption\n" + "".join(f"{n}.png,{n}\n" for n in range(25)))
    report = check(tmp_path)
    assert "and 15 more (all with --json)" in str(report)
    assert len(report.to_dict()["problems"]) == 25


def test_a_clean_set(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    assert "no problems found" in str(check(tmp_path, all_images=True))


def test_wrong_columns_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("photo,caption\na.png,one\n")
    with pytest.raises(UserError, match="found: photo, caption; name it with --image-field"):
        check(tmp_path)


def test_stamps(shared: Path) -> None:
    report = check(shared / "data/stamps")
    assert (report.images, report.captions) == (950, 950)
    assert {name: size.images for name, size in report.splits.items()} == {"train": 764, "val": 104, "test": 82}
    assert report.languages["captions.en"] == 950
    assert len(report.languages) == 78
    assert 200 <= report.opened < 400
    assert {problem.kind for problem in report.problems} <= {"duplicate image"}
    assert "--caption-field" in report.notes[-1]


def test_webdataset(shared: Path) -> None:
    report = check(f"{shared}/data/formats/webdataset/coco_mini_ccby-{{000000..000001}}.tar", all_images=True)
    assert (report.images, report.captions, report.opened, report.problems) == (51, 255, 51, [])


def test_a_name_that_no_file_can_have_is_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "pairs.jsonl").write_text(
        "".join(json.dumps({"image": name, "caption": "a cat"}) + "\n" for name in ("x" * 5000, "a\0b.png"))
    )
    report = check(tmp_path / "pairs.jsonl")
    assert [problem.kind for problem in report.problems] == ["missing file", "missing file"]
