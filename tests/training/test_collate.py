"""Batches are a function of (seed, epoch, sample), whoever loads them; bad samples are reported and harm no other."""

import pickle
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from alignfuse.data.batch import Batch
from alignfuse.data.collate import Bad, Loaded, PairDataset, Sample
from alignfuse.data.readers import read_pairs
from alignfuse.data.records import Record
from alignfuse.data.seeds import generator, mix
from alignfuse.training.settings import TrainingConfig
from tests.training.fake import make_loader


def config(**changes: object) -> TrainingConfig:
    return replace(TrainingConfig(batch_size=4, workers=0), **changes)


def load(
    records: list[Record], settings: TrainingConfig, first: int, last: int, visits: str = "images"
) -> list[Loaded]:
    loader = make_loader(records, settings, visits=visits)
    return [part for group in loader.groups(first, last) for part in group]


def same(one: Batch, other: Batch) -> bool:
    assert one.text is not None and other.text is not None
    pairs = [(one.text.ids, other.text.ids), (one.text.mask, other.text.mask)]
    names = ("images", "maskable", "words", "image_ids", "caption_ids", "seeds")
    pairs += [(getattr(one, name), getattr(other, name)) for name in names]
    return all(torch.equal(a, b) for a, b in pairs)


def test_workers_give_the_batches_of_the_main_process(records: list[Record]) -> None:
    alone, shared = (load(records, config(workers=workers), 3, 14) for workers in (0, 2))
    assert len(alone) == 11
    assert all(same(one.batch, other.batch) for one, other in zip(alone, shared, strict=True))


def test_more_workers_than_batches(records: list[Record]) -> None:
    parts = load(records[:3], config(workers=2), 0, 1)
    assert [sorted(part.batch.image_ids.tolist()) for part in parts if part.batch.image_ids is not None] == [[0, 1, 2]]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores is the point
def test_one_shard_and_four_workers(records: list[Record], tmp_path: Path) -> None:
    """Tars are read by seeking, so workers share one: each sample once, none waits for a shard of its own."""
    with tarfile.open(tmp_path / "shard.tar", "w") as tar:
        for i, record in enumerate(records[:7]):
            tar.add(str(record.image), f"{i}.png")
            (tmp_path / "text").write_text(record.captions[0], encoding="utf-8")
            tar.add(tmp_path / "text", f"{i}.txt")
    found = read_pairs(tmp_path / "shard.tar").records
    parts = load(found, config(batch_size=2, workers=4), 0, 4)
    assert not any(part.bad for part in parts)
    seen = [i for part in parts if part.batch.image_ids is not None for i in part.batch.image_ids.tolist()]
    assert sorted(seen) == list(range(7))


def test_loading_leaves_the_generator_of_dropout_alone(records: list[Record]) -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load(records, config(), 0, 2)
    assert torch.equal(torch.rand(1), expected)


def test_a_stream_continues_at_any_update(records: list[Record]) -> None:
    whole = load(records, config(), 0, 15)
    rest = load(records, config(), 8, 15)
    assert all(same(one.batch, other.batch) for one, other in zip(whole[8:], rest, strict=True))


def test_a_sample_does_not_depend_on_its_neighbours(records: list[Record]) -> None:
    """Rank and batch size change the company, not the sample."""

    def by_image(batch_size: int) -> dict[int, tuple[torch.Tensor, int, int]]:
        found = {}
        for part in load(records, config(batch_size=batch_size), 0, -(-22 // batch_size)):
            batch = part.batch
            assert batch.images is not None and batch.image_ids is not None
            assert batch.caption_ids is not None and batch.seeds is not None
            for i, number in enumerate(batch.image_ids.tolist()):
                found[number] = (batch.images[i], int(batch.caption_ids[i]), int(batch.seeds[i]))
        return found

    small, large = by_image(1), by_image(8)
    assert small.keys() == large.keys() == set(range(22))
    for number, (image, caption, seed) in small.items():
        assert torch.equal(image, large[number][0])
        assert (caption, seed) == large[number][1:]


def test_views_change_with_the_epoch_and_the_seed(records: list[Record]) -> None:
    def seeds(seed: int, first: int) -> set[int]:
        parts = load(records, config(seed=seed), first, first + 6)
        return {number for part in parts if part.batch.seeds is not None for number in part.batch.seeds.tolist()}

    first, second, other = seeds(0, 0), seeds(0, 6), seeds(1, 0)
    assert len(first | second | other) == 66
    assert all(0 <= number < 2**63 for number in first)


def test_an_epoch_visits_each_image_or_each_pair_once(records: list[Record]) -> None:
    def visited(visits: str, updates: int) -> Counter[tuple[int, int]]:
        counts: Counter[tuple[int, int]] = Counter()
        for part in load(records, config(), 0, updates, visits):
            assert part.batch.image_ids is not None and part.batch.caption_ids is not None
            counts.update(zip(part.batch.image_ids.tolist(), part.batch.caption_ids.tolist(), strict=True))
        return counts

    images = visited("images", 6)
    assert Counter(image for image, _ in images.elements()) == Counter(range(22))
    pairs = visited("pairs", -(-sum(len(record.captions) for record in records) // 4))
    assert pairs == Counter((i, k) for i, k in pairs)
    assert len(pairs) == sum(len(record.captions) for record in records)


def test_captions_are_drawn_from_all(records: list[Record]) -> None:
    """An image with three captions shows them all over some epochs."""
    parts = load([records[2]], config(), 0, 30)
    assert {int(part.batch.caption_ids[0]) for part in parts if part.batch.caption_ids is not None} == {0, 1, 2}


def test_kinds_of_choices_do_not_shift_each_other() -> None:
    assert generator(5, "caption").random() != generator(5, "augment").random()
    assert generator(5, "caption").random() == generator(5, "caption").random()
    assert len({mix(a, b) for a in range(30) for b in range(30)}) == 900
    assert mix(1, 2) != mix(2, 1)


def test_datasets_pickle_for_spawned_workers(records: list[Record]) -> None:
    loader = make_loader(records, config())
    copy: PairDataset = pickle.loads(pickle.dumps(loader.dataset))
    one, other = loader.dataset[(0, 5)], copy[(0, 5)]
    assert isinstance(one, Sample) and isinstance(other, Sample)
    assert torch.equal(one.image, other.image)
    items = [one, other]
    assert same(pickle.loads(pickle.dumps(loader.collate))(items).batch, loader.collate(items).batch)


# --- bad samples ------------------------------------------------------------------------------------------------------


@pytest.fixture
def spoilt(records: list[Record], tmp_path: Path) -> list[Record]:
    """The records, of which 3, 9, 10 and 15 cannot be read."""
    whole = records[0].image
    assert isinstance(whole, Path)
    contents = {3: whole.read_bytes()[:120], 9: b"", 10: b"a page, not a picture"}
    changed = list(records)
    for i in (3, 9, 10, 15):
        path = tmp_path / f"bad {i}.png"
        if i in contents:
            path.write_bytes(contents[i])
        changed[i] = replace(records[i], image=path)
    return changed


def test_skipped_samples_are_reported_and_all_others_seen_once(spoilt: list[Record]) -> None:
    for workers in (0, 2):
        parts = load(spoilt, config(workers=workers), 0, 6)
        seen = Counter(i for part in parts if part.batch.image_ids is not None for i in part.batch.image_ids.tolist())
        assert seen == Counter(set(range(22)) - {3, 9, 10, 15})
        bad = {item.row: item for part in parts for item in part.bad}
        assert set(bad) == {f"pairs.csv, row {i + 2}" for i in (3, 9, 10, 15)}
        assert Path(bad["pairs.csv, row 11"].path).name == "bad 9.png"
        assert "empty" in bad["pairs.csv, row 11"].reason


def test_replacements_come_from_elsewhere_and_never_twice_into_a_batch(spoilt: list[Record]) -> None:
    parts = load(spoilt, config(on_bad="replace"), 0, 6)
    assert sum(len(part.bad) for part in parts) == 4
    assert sum(len(part.batch) for part in parts) == 22
    for part in parts:
        assert part.batch.image_ids is not None
        assert len(set(part.batch.image_ids.tolist())) == len(part.batch)
    again = load(spoilt, config(on_bad="replace", workers=2), 0, 6)
    assert all(same(one.batch, other.batch) for one, other in zip(parts, again, strict=True))


def test_a_batch_without_any_good_sample_gets_one(spoilt: list[Record]) -> None:
    parts = load(spoilt, config(batch_size=1), 0, 22)
    assert [len(part.batch) for part in parts] == [1] * 22
    assert sum(len(part.bad) for part in parts) == 4


def test_nothing_readable_at_all_is_an_error_not_a_loop(spoilt: list[Record]) -> None:
    part = load([spoilt[3], spoilt[9]], config(), 0, 1)[0]
    assert len(part.batch) == 0
    assert [type(item) for item in part.bad] == [Bad, Bad]
    assert part.error is not None
