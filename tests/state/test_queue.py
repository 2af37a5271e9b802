"""The feature queue against a list that grows at one end and is cut at the other."""

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.objectives.contrastive import contrastive_loss, equal_targets, positive_pairs
from alignfuse.state.queue import UNKNOWN_ID, FeatureQueue, Keys, read, written

E = 3
NO_PAIRS = torch.empty(0, dtype=torch.long)


def entries(start: int, count: int) -> Keys:
    """Entries that are told apart by their number: feature n, image id n, caption id 100 + n."""
    number = torch.arange(start, start + count)
    feature = number.float()[:, None].expand(-1, E)
    return Keys(feature, -feature, number, 100 + number, torch.ones(count, dtype=torch.bool), number[:, None] % 7)


def ids_by_age(queue: FeatureQueue) -> list[int]:
    """Ids of the filled slots, the oldest first."""
    pointer = int(queue.pointer)
    order = torch.roll(torch.arange(queue.size), -pointer)
    return [int(queue.image_ids[slot]) for slot in order if queue.filled[slot]]


@pytest.mark.parametrize(
    "counts", [[4, 4, 4], [3, 3, 3, 3], [1] * 12, [5, 7, 2, 8, 1], [9], [2, 20, 3], [8], [17, 17], [0, 3, 0, 6]]
)
def test_keeps_the_last_of_any_batches(counts: list[int]) -> None:
    """Batches that divide the queue and that do not, wrapping around, and larger than it."""
    queue, history = FeatureQueue(8, E, 1), list[int]()
    for count in counts:
        queue.push(entries(len(history), count))
        history += range(len(history), len(history) + count)
        assert ids_by_age(queue) == history[-8:]
        filled = queue.keys().filled
        for images, texts, image, caption in zip(*(part[filled] for part in queue.keys()[:4]), strict=True):
            assert images.tolist() == [float(image)] * E and texts.tolist() == [-float(image)] * E
            assert caption == 100 + image


def test_slots_are_written_in_their_order() -> None:
    queue = FeatureQueue(4, E, 1)
    queue.push(entries(0, 3))
    assert queue.image_ids.tolist() == [0, 1, 2, UNKNOWN_ID] and queue.pointer == 3
    queue.push(entries(3, 2))
    assert queue.image_ids.tolist() == [4, 1, 2, 3] and queue.pointer == 1
    queue.push(entries(5, 6))  # the last four of them: 7, 8, 9, 10, the oldest where the queue stands
    assert queue.image_ids.tolist() == [8, 9, 10, 7] and queue.pointer == 3


def test_a_queue_of_no_size() -> None:
    queue = FeatureQueue(0, E, 1)
    queue.push(entries(0, 5))
    assert all(len(part) == 0 for part in queue.keys())  # noqa: SIM118


def test_pushed_features_are_copies_without_gradient() -> None:
    queue, features = FeatureQueue(4, E, 1), torch.ones(2, E, requires_grad=True)
    entries_with_gradient = entries(0, 2)._replace(images=features, texts=features)
    queue.push(entries_with_gradient)
    with torch.no_grad():
        features.fill_(7.0)
    assert not queue.images.requires_grad and queue.images[:2].eq(1.0).all()


def test_half_precision_features_are_stored_in_float32() -> None:
    queue = FeatureQueue(4, E, 1)
    half = entries(0, 2)._replace(images=torch.full((2, E), 0.5, dtype=torch.bfloat16))
    queue.push(half)
    assert queue.images.dtype == torch.float32 and queue.images[:2].eq(0.5).all()


class TestEmptyAndUnknown:
    @staticmethod
    def loss(queue: FeatureQueue, queries: Tensor, own: Tensor) -> Tensor:
        """Image to text, keys of the batch and then of the queue."""
        keys = queue.keys()
        ids = torch.arange(len(queries)) + 50
        all_ids, all_captions = torch.cat([ids, keys.image_ids]), torch.cat([ids, keys.caption_ids])
        valid = torch.cat([torch.ones(len(ids), dtype=torch.bool), keys.filled])
        targets = equal_targets(positive_pairs(ids, all_ids, all_captions, NO_PAIRS) & valid)
        return contrastive_loss(queries @ torch.cat([own, keys.texts]).T, targets, valid)

    def test_an_empty_queue_is_the_batch_alone(self) -> None:
        queries, own = torch.randn(4, E), torch.randn(4, E)
        alone = contrastive_loss(queries @ own.T, torch.eye(4), torch.ones(4, dtype=torch.bool))
        assert torch.allclose(self.loss(FeatureQueue(16, E, 1), queries, own), alone)

    def test_a_loaded_queue_without_ids_is_all_negatives(self) -> None:
        queries, own, loaded = torch.randn(4, E), torch.randn(4, E), torch.randn(16, E)
        queue = FeatureQueue(16, E, 1)
        queue.fill(torch.zeros(16, E), loaded, pointer=5)
        assert queue.filled.all() and (queue.image_ids == UNKNOWN_ID).all() and queue.pointer == 5
        logits = queries @ torch.cat([own, loaded]).T
        expected = contrastive_loss(logits, torch.eye(4, 20), torch.ones(20, dtype=torch.bool))
        assert torch.allclose(self.loss(queue, queries, own), expected)

    def test_a_half_full_queue(self) -> None:
        queries, own = torch.randn(4, E), torch.randn(4, E)
        queue = FeatureQueue(16, E, 1)
        queue.push(entries(0, 3))
        logits = queries @ torch.cat([own, entries(0, 3).texts]).T
        expected = contrastive_loss(logits, torch.eye(4, 7), torch.ones(7, dtype=torch.bool))
        assert torch.allclose(self.loss(queue, queries, own), expected)

    def test_a_push_into_a_loaded_queue_brings_ids(self) -> None:
        queue = FeatureQueue(4, E, 1)
        queue.fill(torch.zeros(4, E), torch.zeros(4, E), pointer=3)
        queue.push(entries(8, 2))
        assert queue.image_ids.tolist() == [9, UNKNOWN_ID, UNKNOWN_ID, 8] and queue.filled.all()


def test_saved_and_loaded_it_goes_on_the_same() -> None:
    queue, other = FeatureQueue(8, E, 1), FeatureQueue(8, E, 1)
    queue.push(entries(0, 5))
    other.load_state_dict(queue.state_dict())
    for each in (queue, other):
        each.push(entries(5, 6))
    assert ids_by_age(other) == [3, 4, 5, 6, 7, 8, 9, 10]
    for name, tensor in queue.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_a_caption_is_read_as_it_was_written() -> None:
    text = Text(torch.tensor([[2, 5, 0, 3], [2, 3, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool())
    kept = written(text, 6)
    assert kept.tolist() == [[2, 5, 0, 3, -1, -1], [2, 3, -1, -1, -1, -1]]
    again = read(kept)
    assert torch.equal(again.ids, text.ids) and torch.equal(again.mask, text.mask)
    assert read(kept[1:]).ids.tolist() == [[2, 3]]
