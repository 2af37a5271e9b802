"""Every layout, with what a person would read in it."""

import csv
import io
import json
import pickle
import tarfile
from pathlib import Path

import pytest

from alignfuse.data.readers import read_pairs
from alignfuse.data.records import PairSet, Record, TarMember
from alignfuse.errors import UserError


def captions(pairs: PairSet) -> dict[str, tuple[str, ...]]:
    return {record.id: record.captions for record in pairs.records}


def kinds(pairs: PairSet) -> list[tuple[str, str]]:
    return [(problem.row, problem.kind) for problem in pairs.problems]


def write_json(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path


def write_lines(path: Path, *entries: object) -> Path:
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return path


def write_tar(path: Path, *files: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


# --- CSV --------------------------------------------------------------------------------------------------------------

TABLE = [
    ["image", "caption", "split"],
    ["images/a b.png", "a cat, sitting; quietly", "train"],
    ["images/b.png", 'she said "hi"\tand left', "val"],
    ["images/a b.png", "eine Kätzchen | 猫", "train"],
    ["images/c.png", "two\nlines", "test"],
]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "txt"])
def test_delimiters_load_alike(tmp_path: Path, delimiter: str, encoding: str, suffix: str) -> None:
    path = tmp_path / f"pairs.{suffix}"
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(TABLE)
    pairs = read_pairs(path)
    assert pairs.records == [
        Record(
            tmp_path / "images/a b.png",
            ("a cat, sitting; quietly", "eine Kätzchen | 猫"),
            "images/a b.png",
            "train",
            f"pairs.{suffix}, row 2",
        ),
        Record(tmp_path / "images/b.png", ('she said "hi" and left',), "images/b.png", "val", f"pairs.{suffix}, row 3"),
        Record(tmp_path / "images/c.png", ("two lines",), "images/c.png", "test", f"pairs.{suffix}, row 5"),
    ]
    assert pairs.problems == []
    assert pairs.rows == 4
    assert pairs.columns == ["image", "caption", "split"]


def test_wrong_column_lists_columns_and_option(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("photo;words;more\na.png;a cat;x\n")
    with pytest.raises(UserError, match=r"images; found: photo, words, more; name it with --image-field"):
        read_pairs(path)
    with pytest.raises(UserError, match=r"captions; found: photo, words, more; name it with --caption-field"):
        read_pairs(path, image_field="photo")
    with pytest.raises(UserError, match=r"'word'; found: photo, words, more; name it with --caption-field"):
        read_pairs(path, image_field="photo", caption_field="word")
    with pytest.raises(UserError, match=r"'part' \(--split-field\); found: photo, words, more"):
        read_pairs(path, image_field="photo", caption_field="words", split_field="part")
    assert captions(read_pairs(path, image_field="photo", caption_field="words")) == {"a.png": ("a cat",)}


def test_usual_names_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("Image_Name| comment | Caption\n1.jpg| 0| A dog .\n")
    pairs = read_pairs(path)
    assert captions(pairs) == {"1.jpg": ("A dog .",)}
    assert pairs.fields == {"image": "Image_Name", "caption": "Caption"}


def test_rows_that_do_not_fit_are_left_out_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(
        "image,caption,split\n"
        "a.png,fine,train\n"
        "b.png,no quotes, here,train\n"  # row 3
        "\n"
        "c.png\n"  # row 5: no caption
        ",orphan,train\n"
        "d.png,   ,train\n"
        'e.png,"broken" quotes,train\n'
        "https://example.org/f.png,far away,train\n"
        "g.png,trailing,,,\n"
        "a.png,other,val\n"
        'h.png,"never closed,train\n'
        "i.png,swallowed,train\n"
    )
    pairs = read_pairs(path)
    assert captions(pairs) == {"a.png": ("fine", "other"), "g.png": ("trailing",)}
    assert pairs.records[0].split == "train"
    assert kinds(pairs) == [
        ("pairs.csv, row 3", "unreadable row"),
        ("pairs.csv, row 5", "no caption"),
        ("pairs.csv, row 6", "no image"),
        ("pairs.csv, row 7", "empty caption"),
        ("pairs.csv, row 8", "unreadable row"),
        ("pairs.csv, row 9", "web address"),
        ("pairs.csv, row 11", "two splits"),
        ("pairs.csv, row 12", "unreadable row"),
    ]
    assert "problems in 8 of 10 rows, the first: pairs.csv, row 3" in caplog.text


def test_images_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "all my images"
    root.mkdir()
    path = tmp_path / "pairs.csv"
    path.write_text(
        f"image,caption\nsub\\a.png,one\n./sub/a.png,two\n{(root / 'b c.png').as_uri()},three\n/x/d.png,four\n"
    )
    pairs = read_pairs(path, root=root)
    assert [record.image for record in pairs.records] == [root / "sub/a.png", root / "b c.png", Path("/x/d.png")]
    assert captions(pairs) == {"sub/a.png": ("one", "two"), "b c.png": ("three",), "/x/d.png": ("four",)}
    with pytest.raises(UserError, match="nowhere: no such folder"):
        read_pairs(path, root=tmp_path / "nowhere")


def test_a_path_relative_to_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/pairs.csv").write_text("image,caption\nsub/a.png,one\n")
    monkeypatch.chdir(tmp_path)
    for path in ("data/pairs.csv", "./data", "data/../data/pairs.csv"):
        record = read_pairs(path).records[0]
        assert (record.image, record.id) == (Path("data/sub/a.png"), "sub/a.png")
    monkeypatch.chdir(tmp_path / "data")
    record = read_pairs("pairs.csv").records[0]
    assert (record.image, record.id) == (Path("sub/a.png"), "sub/a.png")


def test_other_encodings_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes("image,caption\na.png,fine\nb.png,Café\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"pairs\.csv, line 3: not UTF-8 \(byte 0xe9\)"):
        read_pairs(path)


def test_ids_of_the_data(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("file,text,sku\na.png,one,7\nb.png,two,8\na.png,three,9\nc.png,four,7\nd.png,five,\n")
    assert list(captions(read_pairs(path))) == ["a.png", "b.png", "c.png", "d.png"]
    pairs = read_pairs(path, id_field="sku")
    assert [(record.id, record.captions) for record in pairs.records] == [
        ("7", ("one", "three")),
        ("8", ("two",)),
        ("7", ("four",)),  # another file of the same image
        ("d.png", ("five",)),
    ]
    assert pairs.repeated_ids == ["7"]
    assert "1 id stands for several image files, such as 7" in caplog.text


# --- nothing to train on ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pairs.csv", "", "no image-text pair in 0 rows"),
        ("pairs.csv", "image,caption\n", "no image-text pair in 0 rows"),
        ("pairs.csv", "image,caption\na.png,\n", "in 1 row; the first problem: pairs.csv, row 2: empty caption"),
        ("pairs.csv", "image,caption\nhttp://x.org/a.png,a\n", "row 2: web address: http://x.org/a.png: .*download"),
        ("pairs.jsonl", "", "no image-text pair in 0 rows"),
        ("pairs.jsonl", "{oops\n", "row 1: unreadable row: not JSON"),
        ("pairs.json", "[]", "no image-text pair in 0 rows"),
        ("pairs.json", "", "not JSON"),
        ("pairs.json", '{"data": []}', "begins with the key 'data'; expected a list"),
        ("pairs.json", "3", "no list; expected a list"),
        ("pairs.xlsx", "x", "unknown kind of data file; known are folders and .csv"),
        ("pairs.tar", "", "damaged tar"),
    ],
)
def test_empty_data_say_so(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message) as error:
        read_pairs(tmp_path / name)
    assert str(tmp_path / name) in str(error.value)
    assert "\n" not in str(error.value)


def test_no_path_at_all() -> None:
    with pytest.raises(UserError, match="at least one file or folder"):
        read_pairs([])


# --- folders ----------------------------------------------------------------------------------------------------------


def test_folder_with_text_files(tmp_path: Path) -> None:
    (tmp_path / "deep er").mkdir()
    for name in ("b.JPG", "deep er/a.png", "c.webp", "d.png", ".hidden.png", "notes.pdf"):
        (tmp_path / name).touch()
    (tmp_path / "b.txt").write_text("\ufeffone, caption\n\ntwo http://x.org/a b, ünï\nthree\n", encoding="utf-8")
    (tmp_path / "deep er/a.txt").write_text("a")
    (tmp_path / "c.txt").write_text(" \n")
    (tmp_path / "readme.txt").write_text("no image of this name")
    pairs = read_pairs(tmp_path)
    assert captions(pairs) == {"b.JPG": ("one, caption", "two http://x.org/a b, ünï", "three"), "deep er/a.png": ("a",)}
    assert pairs.records[1].image == tmp_path / "deep er/a.png"
    assert kinds(pairs) == [("c.webp", "empty caption"), ("d.png", "no caption")]
    assert pairs.format == "folder of images with .txt files"


def test_folder_with_a_captions_file(tmp_path: Path) -> None:
    (tmp_path / "metadata.csv").write_text("file_name,text\nsub/a.png,one\n")
    (tmp_path / "other.csv").write_text("x,y\n1,2\n")
    pairs = read_pairs(tmp_path)
    assert pairs.records[0].image == tmp_path / "sub/a.png"
    assert pairs.format == "CSV (comma)"


def test_folder_with_one_file_of_any_name(tmp_path: Path) -> None:
    write_lines(tmp_path / "mine.jsonl", {"image": "a.png", "caption": "one"})
    assert captions(read_pairs(tmp_path)) == {"a.png": ("one",)}


def test_folder_that_leaves_a_choice(tmp_path: Path) -> None:
    for name in ("one.csv", "two.jsonl"):
        (tmp_path / name).touch()
    with pytest.raises(UserError, match=r"which file holds the captions: one\.csv, two\.jsonl\?"):
        read_pairs(tmp_path)


def test_folder_without_captions(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    with pytest.raises(UserError, match=r"no captions found; .* or images with a \.txt file beside each"):
        read_pairs(tmp_path)


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text(
        '{"image": "a.png", "caption": "one", "id": 3, "split": "test"}\n'
        "\n"
        '{"image": "b.png", "captions": ["two ", "", "  three\\n\\nfour", null], "caption": "two"}\n'
        '{"image": "c.png"\n'
        "[1, 2]\n"
        '{"image": "d.png", "caption": 5}\n'
        '{"image": ["e.png", "f.png"], "caption": "pair"}\n'
        '{"image": "g.png", "captions": [], "caption": "five"}\n'
        '{"image": "h.png", "captions": [{"raw": "six"}]}\n'
        '{"image": "i.png"}\n',
    )
    pairs = read_pairs(path)
    assert [(record.id, record.captions, record.split) for record in pairs.records] == [
        ("3", ("one",), "test"),
        ("b.png", ("two", "three four"), None),
        ("g.png", ("five",), None),
    ]
    assert kinds(pairs) == [
        ("pairs.jsonl, row 3", "empty caption"),
        ("pairs.jsonl, row 4", "unreadable row"),
        ("pairs.jsonl, row 5", "unreadable row"),
        ("pairs.jsonl, row 6", "no caption"),
        ("pairs.jsonl, row 7", "no image"),
        ("pairs.jsonl, row 9", "no caption"),
        ("pairs.jsonl, row 10", "no caption"),
    ]
    assert pairs.format == "JSON lines"


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_language_map_asks_for_a_language(tmp_path: Path, suffix: str) -> None:
    path = write_lines(
        tmp_path / f"pairs.{suffix}",
        {"image": "a.png", "captions": {"de": "ein Haus", "fr": ["une maison", "la maison"]}},
        {"image": "b.png", "captions": {"fr": "un chat"}},
    )
    with pytest.raises(UserError, match=r"row 1: 'captions' .*\(de, fr\); .*--caption-field captions\.de"):
        read_pairs(path)
    with pytest.raises(UserError, match=r"row 1: 'captions' .*\(de, fr\)"):
        read_pairs(path, caption_field="captions")
    with pytest.raises(UserError, match=r"no column 'captions\.xx'; found: image, captions\.\{de, fr\}"):
        read_pairs(path, caption_field="captions.xx")
    assert captions(read_pairs(path, caption_field="captions.fr")) == {
        "a.png": ("une maison", "la maison"),
        "b.png": ("un chat",),
    }
    german = read_pairs(path, caption_field="captions.de")
    assert captions(german) == {"a.png": ("ein Haus",)}
    assert kinds(german) == [(f"pairs.{suffix}, row 2", "no caption")]
    assert german.languages == {"captions.de": 1, "captions.fr": 2}


def test_language_map_beside_a_caption(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "p.jsonl", {"image": "a.png", "captions": {"de": "ein Haus"}, "caption": "a house"})
    assert captions(read_pairs(path)) == {"a.png": ("a house",)}


def test_dotted_fields_reach_into_objects_and_lists(tmp_path: Path) -> None:
    entry = {"meta": {"file.name": "a.png", "key": 4}, "texts": [{"raw": "one"}, {"raw": "two"}], "a.b": "val"}
    path = write_json(tmp_path / "pairs.json", [entry])
    pairs = read_pairs(
        path, image_field="meta.file.name", caption_field="texts.raw", id_field="meta.key", split_field="a.b"
    )
    assert pairs.records == [Record(tmp_path / "a.png", ("one", "two"), "4", "val", "pairs.json, row 1")]


def test_albef_lists_are_put_together(tmp_path: Path) -> None:
    pretrain = write_json(
        tmp_path / "pretrain.json",
        [{"image": "/export/a.jpg", "caption": "one"}, {"image": "b.jpg", "caption": ["two", "three"]}],
    )
    train = write_json(
        tmp_path / "train.json",
        [
            {"caption": "four", "image": "b.jpg", "image_id": 77},
            {"caption": "five", "image": "c.jpg", "image_id": "x"},
            {"caption": "six", "image": "c.jpg", "image_id": "x"},
        ],
    )
    pairs = read_pairs([pretrain, train])
    assert captions(pairs) == {"/export/a.jpg": ("one",), "b.jpg": ("two", "three", "four"), "x": ("five", "six")}
    assert pairs.path == pretrain
    assert pairs.rows == 5
    assert pairs.format == "JSON list"


def test_files_of_one_name_in_two_folders_are_two_images(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_json(tmp_path / folder / "pairs.json", [{"image": "a.png", "caption": folder}])
    pairs = read_pairs([tmp_path / "one", tmp_path / "two"])
    assert captions(pairs) == {"a.png": ("one",), str(tmp_path / "two/a.png"): ("two",)}
    assert pairs.repeated_ids == []


def test_karpathy(tmp_path: Path) -> None:
    document = {
        "dataset": "coco",
        "images": [
            {
                "filepath": "val2014",
                "filename": "COCO_1.jpg",
                "imgid": 0,
                "cocoid": 1,
                "split": "restval",
                "sentences": [{"raw": "A man. ", "tokens": ["a"]}, {"raw": "Two\nmen ."}],
            },
            {"filename": "2.jpg", "imgid": 1, "split": "test", "sentences": [{"raw": "a dog"}]},
            {"filename": "3.jpg", "imgid": 2, "split": "test", "sentences": []},
        ],
    }
    pairs = read_pairs(write_json(tmp_path / "dataset_coco.json", document))
    assert pairs.format == "Karpathy split"
    assert pairs.records == [
        Record(
            tmp_path / "val2014/COCO_1.jpg",
            ("A man.", "Two men ."),
            "val2014/COCO_1.jpg",
            "restval",
            "dataset_coco.json, row 1",
        ),
        Record(tmp_path / "2.jpg", ("a dog",), "2.jpg", "test", "dataset_coco.json, row 2"),
    ]
    assert kinds(pairs) == [("dataset_coco.json, row 3", "empty caption")]


def test_coco_captions(tmp_path: Path) -> None:
    document = {
        "images": [
            {"id": 42, "file_name": "000042.jpg"},
            {"id": 7, "file_name": "7.jpg"},
            {"id": 8, "file_name": "8.jpg"},
        ],
        "annotations": [
            {"image_id": 7, "id": 1, "caption": "A  cat\n"},
            {"image_id": 42, "id": 2, "caption": "a bus"},
            {"image_id": 7, "id": 3, "caption": "the cat"},
            {"image_id": 9, "id": 4, "caption": "nobody's"},
        ],
    }
    (tmp_path / "val2017").mkdir()
    pairs = read_pairs(write_json(tmp_path / "captions_val2017.json", document), root=tmp_path / "val2017")
    assert pairs.format == "COCO captions"
    assert pairs.records == [
        Record(tmp_path / "val2017/000042.jpg", ("a bus",), "42", None, "captions_val2017.json, image 42"),
        Record(tmp_path / "val2017/7.jpg", ("A cat", "the cat"), "7", None, "captions_val2017.json, image 7"),
    ]
    assert kinds(pairs) == [
        ("captions_val2017.json, image 8", "empty caption"),
        ("captions_val2017.json, image 9", "no image"),
    ]


def test_coco_boxes_are_no_captions(tmp_path: Path) -> None:
    document = {"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "bbox": [0, 0, 1, 1]}]}
    with pytest.raises(UserError, match=r"without captions \(they hold image_id, bbox\); use the file captions_"):
        read_pairs(write_json(tmp_path / "instances_val2017.json", document))


# --- parquet ----------------------------------------------------------------------------------------------------------


def test_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {"file": ["a.png", "b.png", "a.png"], "text": ["one", "", "two"], "thumbnail": [b"1", b"2", b"3"]}
    parquet.write_table(pa.table(columns), tmp_path / "x.parquet")
    pairs = read_pairs(tmp_path / "x.parquet")
    assert pairs.records == [Record(tmp_path / "a.png", ("one", "two"), "a.png", None, "x.parquet, row 1")]
    assert kinds(pairs) == [("x.parquet, row 2", "empty caption")]

    parquet.write_table(pa.table({"image": ["c.png"], "captions": [["three", "four"]]}), tmp_path / "y.parquet")
    assert captions(read_pairs(tmp_path)) == {"a.png": ("one", "two"), "c.png": ("three", "four")}


def test_parquet_with_the_images_inside(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pa.table({"image": [{"bytes": b"\xff\xd8", "path": "a.jpg"}], "text": ["one"], "where": ["b.jpg"]})
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(UserError, match="not a path but the image itself; write images to files"):
        read_pairs(tmp_path / "x.parquet")
    assert captions(read_pairs(tmp_path / "x.parquet", image_field="where")) == {"b.jpg": ("one",)}


def test_parquet_that_is_none(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "x.parquet").write_text("image,caption\n")
    with pytest.raises(UserError, match=r"x\.parquet: not a readable parquet file"):
        read_pairs(tmp_path / "x.parquet")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "x.parquet").touch()
    with pytest.raises(UserError, match=r"need pyarrow: pip install 'alignfuse\[parquet\]'"):
        read_pairs(tmp_path / "x.parquet")


# --- tars -------------------------------------------------------------------------------------------------------------


def test_tar_in_the_layout_of_img2dataset(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "00000.tar",
        ("000000000.jpg", b"first image"),
        ("000000000.txt", "ein Häuschen\n".encode()),
        ("000000000.json", b'{"caption": "ein H\\u00e4uschen", "url": "http://x.org/a.jpg", "image": "nothing"}'),
        ("sub.dir/000000001.JPG", b"2nd"),
        ("sub.dir/000000001.txt", b"two"),
        ("000000002.txt", b"no image"),
        ("000000003.seg.png", b"mask"),
        ("000000003.png", b"third"),
        ("000000003.json", b'["not", "an object"]'),
        ("000000004.png", b"x"),
        ("000000004.json", b"{"),
    )
    pairs = read_pairs(path)
    assert captions(pairs) == {"00000/000000000": ("ein Häuschen",), "00000/sub.dir/000000001": ("two",)}
    member = pairs.records[0].image
    assert isinstance(member, TarMember)
    assert (member.path, member.name, member.size) == (path, "000000000.jpg", 11)
    assert path.read_bytes()[member.offset : member.offset + member.size] == b"first image"
    assert pairs.records[0].row == "00000.tar, 000000000"
    assert kinds(pairs) == [
        ("00000.tar, 000000002", "no image"),
        ("00000.tar, 000000003", "no caption"),
        ("00000.tar, 000000004", "unreadable row"),
    ]
    assert captions(read_pairs(path, caption_field="json"))["00000/000000003"] == ("not", "an object")


def test_shards_by_brace_range_glob_and_folder(tmp_path: Path) -> None:
    for shard in range(3):
        write_tar(tmp_path / f"s-{shard:06d}.tar", ("0.png", b"x"), ("0.txt", str(shard).encode()))
    expected = {f"s-{shard:06d}/0": (str(shard),) for shard in range(3)}
    for path in (f"{tmp_path}/s-{{000000..000002}}.tar", f"{tmp_path}/s-*.tar", str(tmp_path)):
        assert captions(read_pairs(path)) == expected


@pytest.mark.parametrize("name", ["x.tgz", "x.tar.gz", "x.tar"])
def test_compressed_tars_are_refused(tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / name, "w:gz"):
        pass
    with pytest.raises(UserError, match=r"compressed tar .* unpack it: gunzip -c .* > x\.tar"):
        read_pairs(tmp_path / name)


def test_a_tar_cut_short_gives_what_is_whole(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "cut.tar", ("0.txt", b"one"), ("0.png", b"x" * 600), ("1.txt", b"two"), ("1.png", b"y" * 6000)
    )
    data = path.read_bytes()
    path.write_bytes(data[: data.index(b"yyy") + 50])
    pairs = read_pairs(path)
    assert captions(pairs) == {"cut/0": ("one",)}
    assert kinds(pairs) == [("cut.tar, 1", "no image"), ("cut.tar", "unreadable row")]


def test_records_travel_to_spawned_workers(tmp_path: Path) -> None:
    write_tar(tmp_path / "s.tar", ("0.png", b"x"), ("0.txt", b"one"))
    write_json(tmp_path / "p.json", [{"image": "D:\\a b\\x.png", "caption": "two"}])
    records = read_pairs([tmp_path / "s.tar", tmp_path / "p.json"]).records
    assert records[1].image == Path("D:/a b/x.png")
    assert pickle.loads(pickle.dumps(records)) == records


# --- real files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "format_name", "images", "texts", "fields"),
    [
        ("stamps", "JSON lines", 950, 950, {"image": "image", "caption": "caption", "split": "split"}),
        (
            "formats/derived_albef/coco_mini_re_train.json",
            "JSON list",
            80,
            400,
            {"image": "image", "caption": "caption", "id": "image_id"},
        ),
        (
            "formats/derived_albef/flickr8k_re_val.json",
            "JSON list",
            400,
            2000,
            {"image": "image", "caption": "caption"},
        ),
        (
            "formats/derived_albef/pretrain_coco_mini.json",
            "JSON list",
            80,
            400,
            {"image": "image", "caption": "caption"},
        ),
        (
            "formats/karpathy/dataset_ucm_excerpt100.json",
            "Karpathy split",
            100,
            500,
            {"image": "image", "caption": "captions", "split": "split"},
        ),
        (
            "formats/webdataset",
            "webdataset tar",
            51,
            255,
            {"image": "image", "caption": "captions", "id": "image_id"},
        ),
    ],
)
def test_real_files(shared: Path, path: str, format_name: str, images: int, texts: int, fields: dict[str, str]) -> None:
    pairs = read_pairs(shared / "data" / path)
    assert pairs.format == format_name
    assert len(pairs.records) == images
    assert sum(len(record.captions) for record in pairs.records) == texts
    assert pairs.fields == fields
    assert pairs.problems == []


@pytest.mark.parametrize("name", ["clipart", "emoji"])
def test_head_of_a_real_set_with_its_images_elsewhere(shared: Path, tmp_path: Path, name: str) -> None:
    with (shared / "data" / name / "captions.jsonl").open(encoding="utf-8") as file:
        head = [next(file) for _ in range(100)]
    (tmp_path / "captions.jsonl").write_text("".join(head), encoding="utf-8")
    pairs = read_pairs(tmp_path, root=shared / "data" / name)
    assert [record.captions for record in pairs.records] == [(json.loads(line)["caption"],) for line in head]
    assert all(isinstance(record.image, Path) and record.image.is_file() for record in pairs.records)
    assert pairs.fields == {"image": "image", "caption": "caption", "split": "split"}


def test_stamps_in_german(shared: Path) -> None:
    pairs = read_pairs(shared / "data/stamps/captions.jsonl", caption_field="captions.de")
    assert pairs.records[0].captions == ("Ein Frosch.",)
    assert len(pairs.languages) == 78
    assert kinds(pairs) == [("captions.jsonl, row 475", "no caption")]


def test_real_karpathy_record(shared: Path) -> None:
    folder = shared / "data/formats/karpathy"
    record = read_pairs(folder / "dataset_coco_record_example.json").records[0]
    assert record.image == folder / "val2014/COCO_val2014_000000391895.jpg"
    assert record.captions == ("A man with a red helmet on a small moped on a dirt road.",)
    assert record.split == "test"


def test_real_tar_members_are_jpegs_at_their_offsets(shared: Path) -> None:
    folder = shared / "data/formats/webdataset"
    for record in read_pairs(f"{folder}/coco_mini_ccby-{{000000..000001}}.tar").records:
        assert isinstance(record.image, TarMember)
        with record.image.path.open("rb") as file:
            file.seek(record.image.offset)
            data = file.read(record.image.size)
        assert data.startswith(b"\xff\xd8")
        assert data.rstrip(b"\0").endswith(b"\xff\xd9")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("formats/webdataset/testdata_sample.tgz", "gunzip -c"),
        ("formats/conceptual_captions/Validation_GCC_head200.tsv", "found: author : a life in photography"),
        ("formats/derived_albef/nlvr2_fixture.json", "found: sentence, label, images; name it with --image-field"),
        ("formats/derived_albef/ve_fixture.json", "found: image, sentence, label; name it with --caption-field"),
        ("formats/derived_albef/vqa_rad_answer_list.json", "row 1: unreadable row: not an object"),
        ("formats/nlvr2/dev_head200.json", "no column with the images; found: .*sentence, left_url"),
        (
            "formats/multi30k/test_2016_flickr_head200.jsonl",
            "found: image, en, de, fr, cs; name it with --caption-field",
        ),
    ],
)
def test_real_files_of_other_tasks_are_refused(shared: Path, path: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_pairs(shared / "data" / path)


# --- What no writer of such files meant -------------------------------------------------------------------------------


def test_lines_that_end_with_carriage_returns_alone_are_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_bytes(b"image,caption\ra.png,a cat\r")
    with pytest.raises(UserError, match=r"pairs\.csv: its first line is no row of a table"):
        read_pairs(path)


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pairs.json"
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.json: nested too deeply"):
        read_pairs(path)


def test_half_of_an_emoji_is_dropped_from_a_caption(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "pairs.jsonl", {"image": "a.png", "caption": "a cat \ud83d"})
    assert captions(read_pairs(path)) == {"a.png": ("a cat",)}
