"""Splits that stay put, and who is whose positive."""

import json
from pathlib import Path

import pytest
import torch

from alignfuse.data.ids import Identities, normalised
from alignfuse.data.records import Record
from alignfuse.data.splits import choose_split, split_records
from alignfuse.errors import UserError


def record(identity: str, *captions: str, split: str | None = None, file: str | None = None) -> Record:
    return Record(Path(file or f"{identity}.png"), captions or ("a",), identity, split, f"row {identity}")


def ids(records: list[Record]) -> list[str]:
    return [each.id for each in records]


def test_a_split_column_is_honoured() -> None:
    names = ["train", "restval", "val", "test", "Validation", "dev", "TRAIN", "testA", None]
    records = [record(str(number), split=name) for number, name in enumerate(names)]
    splits = split_records(records)
    assert {name: ids(part) for name, part in splits.items()} == {
        "train": ["0", "1", "6", "8"],  # a record without a value trains
        "val": ["2", "4", "5"],
        "test": ["3"],
        "testA": ["7"],
    }


def test_without_a_column_one_in_twenty_is_held_out_by_id() -> None:
    records = [record(f"images/{number}.png") for number in range(4000)]
    splits = split_records(records)
    assert set(splits) == {"train", "val"}
    assert ids(splits["train"]) == [each.id for each in records if each.id not in set(ids(splits["val"]))]
    assert 0.035 < len(splits["val"]) / len(records) < 0.065  # 5% give or take four standard deviations

    half = split_records(records[::2])  # other data do not move an image
    assert set(ids(half["val"])) == set(ids(splits["val"])) & set(ids(records[::2]))
    assert set(ids(split_records(records, held_out=0.2)["val"])) > set(ids(splits["val"]))


def test_the_hash_is_the_same_in_every_process_and_release() -> None:
    # The first 48 bits of SHA-256, as a share: "33" 0.7772, "34" 0.5269.
    assert ids(split_records([record("33"), record("34")], held_out=0.6)["val"]) == ["34"]
    assert ids(split_records([record("33"), record("34")], held_out=0.526)["val"]) == ["34"]  # the lowest stands in
    assert ids(split_records([record("33"), record("34")], held_out=0.78)["val"]) == ["33", "34"]


@pytest.mark.parametrize("count", [2, 3, 10])
def test_small_sets_hold_out_at_least_one(count: int) -> None:
    splits = split_records([record(str(number)) for number in range(count)], held_out=0.001)
    assert len(splits["val"]) == 1
    assert len(splits["train"]) == count - 1


def test_a_single_image_trains_and_nothing_may_be_held_out() -> None:
    assert set(split_records([record("only")])) == {"train"}
    assert set(split_records([record("a"), record("b")], held_out=0.0)) == {"train"}


def test_a_split_is_chosen_by_name_or_test_before_val() -> None:
    divided = [record("a"), record("b", split="val"), record("c", split="test")]
    assert [choose_split(divided, name)[0] for name in (None, "val", "dev", "all")] == ["test", "val", "val", "all"]
    assert ids(choose_split(divided)[1]) == ["c"]
    with pytest.raises(UserError, match=r"no split 'nosuch' in the data; it holds train \(1 image\), val \(1 image\)"):
        choose_split(divided, "nosuch")


def test_data_without_splits_has_train_val_and_all() -> None:
    records = [record(str(number)) for number in range(100)]
    for share in (0.05, 0.2):
        splits = split_records(records, held_out=share)
        for name, expected in ((None, "val"), ("val", "val"), ("train", "train")):
            assert choose_split(records, name, held_out=share) == (expected, splits[expected])
    assert choose_split(records, "all") == ("all", records)
    with pytest.raises(UserError, match=r"no split 'nosuch' in the data, which has no split column; it holds .*all"):
        choose_split(records, "nosuch")


def test_a_file_without_splits_may_be_a_test_set(caplog: pytest.LogCaptureFixture) -> None:
    records = [record("a"), record("b")]
    assert choose_split(records, "test") == ("test", records)
    assert "the data has no split column: all 2 images are taken as test" in caplog.text


def test_files_of_one_id_stay_together() -> None:
    records = [record(str(number // 4), file=f"{number}.png") for number in range(400)]
    for part in split_records(records, held_out=0.3).values():
        assert all(ids(part).count(identity) == 4 for identity in ids(part))


def test_identities_by_hand() -> None:
    records = [
        record("a", "A red car.", "a  RED\tcar.", "one"),
        record("b", "two"),
        record("a", "three", file="another.png"),  # the same image under another name
        record("c", "One", "four"),
    ]
    identities = Identities.of(records)
    assert identities.image_ids.tolist() == [0, 1, 0, 2]
    assert identities.caption_ids == [[0, 0, 1], [2], [3], [1, 4]]
    # Caption 1 ("one") stands under the images 0 and 2, no other under two.
    assert identities.shared.tolist() == [0 * 2**32 + 1, 2 * 2**32 + 1]
    assert identities.shared.dtype == torch.int64


def test_a_caption_under_two_files_of_one_image_is_not_shared() -> None:
    assert Identities.of([record("a", "x"), record("a", "X", file="b.png")]).shared.tolist() == []


def test_users_ids_become_running_numbers() -> None:
    identities = Identities.of([record("-100", "x"), record("-1", "y")])
    assert identities.image_ids.tolist() == [0, 1]


def test_no_records() -> None:
    identities = Identities.of([])
    assert identities.image_ids.shape == (0,)
    assert identities.caption_ids == []
    assert identities.shared.shape == (0,)


def test_shared_agrees_with_a_slow_statement() -> None:
    records = [record(str(n % 7), *(str((n * k) % 11) for k in range(1, 4)), file=f"{n}.png") for n in range(40)]
    identities = Identities.of(records)
    under: dict[str, set[str]] = {}
    for each in records:
        for caption in each.captions:
            under.setdefault(normalised(caption), set()).add(each.id)
    number_of = {str(each.id): int(identities.image_ids[place]) for place, each in enumerate(records)}
    caption_of = {
        normalised(caption): number
        for each, numbers in zip(records, identities.caption_ids, strict=True)
        for caption, number in zip(each.captions, numbers, strict=True)
    }
    expected = sorted(
        number_of[image] * 2**32 + caption_of[caption]
        for caption, images in under.items()
        if len(images) > 1
        for image in images
    )
    assert identities.shared.tolist() == expected


def test_stamps_identities(shared: Path) -> None:
    lines = (shared / "data/stamps/captions.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    records = [record(row["image"], row["caption"], split=row["split"]) for row in rows]
    identities = Identities.of(records)
    exact = [each.captions[0] for each in records]
    assert len(set(exact)) == 804
    distinct = {normalised(text) for text in exact}
    assert len({number for numbers in identities.caption_ids for number in numbers}) == len(distinct)
    splits = split_records(records)
    assert {name: len(part) for name, part in splits.items()} == {"train": 764, "val": 104, "test": 82}
