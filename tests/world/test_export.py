"""Exported files hold what the world holds, in the layouts that the official code reads."""

import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alignfuse.data.readers import read_pairs
from alignfuse.errors import UserError
from alignfuse.world.captions import captions
from alignfuse.world.export import FORMATS, export, split_sizes
from alignfuse.world.render import render
from alignfuse.world.sampling import Sample, World

SIZES = {"train": 9, "val": 4, "test": 5}
WORLD = World(seed=5)


def expected() -> list[Sample]:
    return [sample for split, count in SIZES.items() for sample in WORLD.samples(split, count)]


def written(tmp_path: Path, layout: str) -> Path:
    files = export(tmp_path / layout, SIZES, world=WORLD, image_size=24, format=layout)
    assert files and all(file.is_file() for file in files)
    return tmp_path / layout


def texts(sample: Sample) -> list[str]:
    return [caption.text for caption in captions(sample.scene)]


def test_images_and_facts_are_the_scenes(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    export(
        tmp_path / "out", SIZES, world=WORLD, image_size=24, progress=lambda done, total: steps.append((done, total))
    )
    rows = [json.loads(line) for line in (tmp_path / "out/scenes.jsonl").read_text().splitlines()]
    assert steps[-1] == (18, 18)
    assert len(list((tmp_path / "out").rglob("*.png"))) == 18
    for row, sample in zip(rows, expected(), strict=True):
        assert (row["id"], row["split"]) == (sample.id, sample.split)
        pixels = np.asarray(Image.open(tmp_path / "out" / row["image"]))
        np.testing.assert_array_equal(pixels, render(sample.scene, 24))
        for thing, fact in zip(sample.scene.things, row["things"], strict=True):
            assert (fact["size"], fact["colour"], fact["texture"], fact["shape"]) == thing.kind
            np.testing.assert_allclose(fact["box"], thing.box(24), atol=0.005)


def test_jsonl(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (written(tmp_path, "jsonl") / "pairs.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == [sample.id for sample in expected()]
    assert [row["caption"] for row in rows] == [texts(sample) for sample in expected()]
    assert {row["split"] for row in rows} == set(SIZES)
    assert all((tmp_path / "jsonl" / row["image"]).is_file() for row in rows)


def test_karpathy(tmp_path: Path) -> None:
    content = json.loads((written(tmp_path, "karpathy") / "dataset_world.json").read_text())
    sentence_ids = [number for image in content["images"] for number in image["sentids"]]
    assert sentence_ids == list(range(18 * 5))
    for number, (image, sample) in enumerate(zip(content["images"], expected(), strict=True)):
        assert image["imgid"] == number and image["split"] == sample.split
        assert (tmp_path / "karpathy" / image["filepath"] / image["filename"]).is_file()
        assert [sentence["raw"] for sentence in image["sentences"]] == texts(sample)
        assert all(sentence["tokens"] == sentence["raw"].split() for sentence in image["sentences"])


def test_coco(tmp_path: Path) -> None:
    out = written(tmp_path, "coco")
    for split, count in SIZES.items():
        content = json.loads((out / f"captions_{split}.json").read_text())
        files = {image["id"]: image["file_name"] for image in content["images"]}
        assert len(files) == count and all((out / name).is_file() for name in files.values())
        for sample in WORLD.samples(split, count):
            mine = [row["caption"] for row in content["annotations"] if row["image_id"] == sample.index]
            assert mine == texts(sample)


def test_albef(tmp_path: Path) -> None:
    out = written(tmp_path, "albef")
    train, test = WORLD.samples("train", 9), WORLD.samples("test", 5)
    assert [row["caption"] for row in json.loads((out / "pretrain.json").read_text())] == [texts(one) for one in train]
    assert [row["caption"] for row in json.loads((out / "retrieval_test.json").read_text())] == [
        texts(one) for one in test
    ]
    per_caption = json.loads((out / "retrieval_train.json").read_text())
    assert [row["caption"] for row in per_caption] == [text for sample in train for text in texts(sample)]
    assert len({row["image_id"] for row in per_caption}) == 9


def test_csv(tmp_path: Path) -> None:
    out = written(tmp_path, "csv")
    with (out / "captions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["caption"] for row in rows] == [text for sample in expected() for text in texts(sample)]
    assert [row["split"] for row in rows] == [sample.split for sample in expected() for _ in range(5)]
    assert all((out / row["image"]).is_file() for row in rows)


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("jsonl", "pairs.jsonl"),
        ("karpathy", "dataset_world.json"),
        ("coco", "captions_train.json"),
        ("albef", "pretrain.json"),
        ("csv", "captions.csv"),
    ],
)
def test_pair_formats_open_in_the_pair_reader(tmp_path: Path, layout: str, file: str) -> None:
    pairs = read_pairs(written(tmp_path, layout) / file)
    found = {Path(record.image).name: list(record.captions) for record in pairs.records}
    wanted = {f"{sample.id}.png": texts(sample) for sample in expected()}
    if layout in ("coco", "albef"):
        wanted = {name: captions for name, captions in wanted.items() if name.startswith("train")}
    assert found == wanted and not pairs.problems
    assert all(Path(record.image).is_file() for record in pairs.records)


def test_vqa(tmp_path: Path) -> None:
    out = written(tmp_path, "vqa")
    asked = json.loads((out / "questions_test.json").read_text())["questions"]
    annotated = json.loads((out / "annotations_test.json").read_text())["annotations"]
    known = set(json.loads((out / "answer_list.json").read_text()))
    assert [row["question_id"] for row in asked] == [row["question_id"] for row in annotated]
    assert len({row["question_id"] for row in asked}) == len(asked)
    for row in annotated:
        assert row["question_id"] // 1000 == row["image_id"]
        assert [answer["answer_id"] for answer in row["answers"]] == list(range(1, 11))
        given = [answer["answer"] for answer in row["answers"]]
        assert set(given) <= known and row["multiple_choice_answer"] in given
        assert row["answer_type"] in ("yes/no", "number", "other")
    train, test = (json.loads((out / f"vqa_{split}.json").read_text()) for split in ("train", "test"))
    assert all(len(row["answer"]) == 10 for row in train) and not any("answer" in row for row in test)
    assert all((out / row["image"]).is_file() for row in train + test)


def test_nlvr2(tmp_path: Path) -> None:
    out = written(tmp_path, "nlvr2")
    rows = [json.loads(line) for line in (out / "train.json").read_text().splitlines()]
    lists = json.loads((out / "nlvr_train.json").read_text())
    assert len(rows) == len(lists) == 4  # nine scenes: two statements of two pairs
    for row, listed in zip(rows, lists, strict=True):
        stem = row["identifier"].rsplit("-", 1)[0]
        assert row["label"] in ("True", "False") and (row["sentence"], row["label"]) == (
            listed["sentence"],
            listed["label"],
        )
        for side, path in enumerate(listed["images"]):
            assert (out / f"nlvr2_images/train/{stem}-img{side}.png").read_bytes() == (out / path).read_bytes()
    assert [row["sentence"] for row in rows[::2]] == [row["sentence"] for row in rows[1::2]]
    assert {row["label"] for row in rows[:2]} == {"True", "False"}


def test_snli_ve(tmp_path: Path) -> None:
    out = written(tmp_path, "snli-ve")
    rows = [json.loads(line) for line in (out / "snli_ve_dev.jsonl").read_text().splitlines()]
    assert [row["Flickr30K_ID"] for row in rows[::3]] == [sample.id for sample in WORLD.samples("val", 4)]
    assert [row["gold_label"] for row in rows[:3]] == ["entailment", "neutral", "contradiction"]
    assert len({row["pairID"] for row in rows}) == 12
    listed = json.loads((out / "ve_val.json").read_text())
    assert [row["sentence"] for row in listed] == [row["sentence2"] for row in rows]


def test_refcoco(tmp_path: Path) -> None:
    out = written(tmp_path, "refcoco")
    refs = pickle.loads((out / "refs(unc).p").read_bytes())
    instances = json.loads((out / "instances.json").read_text())
    boxes = {row["id"]: row for row in instances["annotations"]}
    names = {row["id"]: row["name"] for row in instances["categories"]}
    images = {row["id"]: row["file_name"] for row in instances["images"]}
    things = [(sample, thing) for sample in expected() for thing in sample.scene.things]
    for ref, (sample, thing) in zip(refs, things, strict=True):
        box = boxes[ref["ann_id"]]
        left, top, right, bottom = thing.box(24)
        np.testing.assert_allclose(box["bbox"], (left, top, right - left, bottom - top))
        assert names[box["category_id"]] == names[ref["category_id"]] == thing.shape
        assert images[box["image_id"]] == images[ref["image_id"]] == f"images/{sample.split}/{sample.id}.png"
        assert [sentence["sent_id"] for sentence in ref["sentences"]] == ref["sent_ids"]
    sentence_ids = [number for ref in refs for number in ref["sent_ids"]]
    assert len(set(sentence_ids)) == len(sentence_ids)
    assert {ref["split"] for ref in refs} == {"train", "val", "testA"}
    train = json.loads((out / "refcoco_train.json").read_text())
    assert {row["ref_id"] for row in train} == {ref["ref_id"] for ref in refs if ref["split"] == "train"}


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="jsonl, karpathy, coco"):
        export(tmp_path / "out", SIZES, format="yaml")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="is not empty"):
        export(tmp_path / "full", SIZES)
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"


def test_every_format_is_tested() -> None:
    assert {name.replace("-", "_") for name in FORMATS} == {
        name.removeprefix("test_") for name in globals() if name.removeprefix("test_").replace("_", "-") in FORMATS
    }


def test_split_sizes() -> None:
    assert split_sizes(1) == {"train": 1, "val": 1, "test": 1}
    assert split_sizes(6000) == {"train": 6000, "val": 600, "test": 600}
    assert split_sizes(50_000)["test"] == 1000
