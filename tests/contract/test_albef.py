"""ALBEF's three losses once more, one pair at a time, and the settings that are its own."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.data.batch import Batch
from alignfuse.objectives.masked_language import IGNORED
from alignfuse.state.queue import NO_TOKEN, UNKNOWN_ID, Keys
from alignfuse.systems.draws import GivenDraws
from alignfuse.systems.protocols import Clock, Masking
from tests.contract.setups import (
    MASK,
    SPECIAL,
    TEXT,
    TINY,
    WORDS,
    build,
    draws,
    objective,
    pairs,
    snapshot,
    step,
    subsets,
)

EPOCH = 0.5  # half of the ramp
UNDER = {5: {0, 1}}  # caption 5 stands under the images 0 and 1
SHARED = torch.tensor([0 * 2**32 + 5, 1 * 2**32 + 5])


def system_of(**options: Any) -> Any:
    """A tiny system whose outputs depend on every input, and whose teacher has gone another way."""
    system = build("albef", **options)
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in system.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=random))
        system.model.temperature.fill_(0.2)
    return system


def unit(count: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, 8, generator=random), dim=1)


def queued(system: Any, image_ids: list[int], caption_ids: list[int]) -> None:
    """Earlier pairs with these ids and random features."""
    count = len(image_ids)
    filled = torch.ones(count, dtype=torch.bool)
    no_captions = torch.full((count, system.caption_tokens), NO_TOKEN)
    ids = torch.tensor(image_ids), torch.tensor(caption_ids)
    keys = Keys(unit(count, 2), unit(count, 3), *ids, filled, no_captions)
    system.after_step([keys._asdict()])


def features(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    return model.embed_image(model.encode_image(batch.images)), model.embed_text(model.encode_text(batch.text))


def contrast_in_loops(
    queries: Tensor, taught: Tensor, keys: list[Tensor], positive: list[list[bool]], temperature: float, alpha: float
) -> float:
    """One direction: -sum_k ((1 - alpha) hard + alpha teacher) log student, over the keys that exist."""
    total = 0.0
    for query, opinion_of, truths in zip(queries, taught, positive, strict=True):
        student = torch.stack([query @ key for key in keys]) / temperature
        teacher = torch.softmax(torch.stack([opinion_of @ key for key in keys]) / temperature, 0)
        log_probabilities = student - torch.logsumexp(student, 0)
        for key, is_true in enumerate(truths):
            target = (1 - alpha) * (is_true / sum(truths)) + alpha * teacher[key]
            total -= float(target * log_probabilities[key])
    return total


@torch.no_grad()
def itc_in_loops(
    system: Any, batch: Batch, stored: tuple[list[int], list[int]], under: dict[int, set[int]], alpha: float
) -> float:
    """ITC over the batch and the queued pairs; `under` tells of each caption which images it stands under."""
    images, texts = features(system.model, batch)
    taught_images, taught_texts = features(system.teacher.model, batch)
    count = len(stored[0])
    image_keys = [*taught_images, *system.queue.images[:count]]
    text_keys = [*taught_texts, *system.queue.texts[:count]]
    assert batch.image_ids is not None and batch.caption_ids is not None
    all_images, all_captions = batch.image_ids.tolist() + stored[0], batch.caption_ids.tolist() + stored[1]

    def true(image: int, text: int) -> bool:
        """Whether the caption of pair `text` fits the image of pair `image`."""
        if image == text:
            return True
        own, other = all_images[image], all_images[text]
        return own >= 0 and (own == other or own in under.get(all_captions[text], set()))

    rows, keys = range(len(batch)), range(len(all_images))
    to_texts = [[true(i, k) for k in keys] for i in rows]
    to_images = [[true(k, t) for k in keys] for t in rows]
    temperature = system.model.temperature.item()
    return (
        contrast_in_loops(images, taught_images, text_keys, to_texts, temperature, alpha)
        + contrast_in_loops(texts, taught_texts, image_keys, to_images, temperature, alpha)
    ) / 2


@torch.no_grad()
def match_in_loops(model: Any, batch: Batch, scored: list[tuple[int, int, int]]) -> float:
    """ITM over (text, image, label), each pair encoded and fused alone."""
    assert batch.images is not None and batch.text is not None
    total = 0.0
    for text, image, label in scored:
        memory = model.remember(model.encode_image(batch.images[[image]]))
        encoded = model.encode_text(Text(batch.text.ids[[text]], batch.text.mask[[text]]))
        total -= torch.log_softmax(model.match(model.fuse(encoded, memory))[0], 0)[label].item()
    return total


def join_ids(*texts: Text) -> Text:
    """Texts under each other."""
    length = max(text.ids.shape[1] for text in texts)
    ids, masks = (
        [torch.nn.functional.pad(part, (0, length - part.shape[1])) for part in parts]
        for parts in zip(*(text[:2] for text in texts), strict=True)
    )
    return Text(torch.cat(ids), torch.cat(masks))


def test_a_text_is_embedded_by_its_mean_where_asked_for() -> None:
    """The mean over the real tokens alone, [CLS] and [SEP] among them."""
    model = build("albef", config=replace(TINY["albef"].config, text_pooling="mean")).model.eval()
    text = pairs(3).text
    assert text is not None
    with torch.no_grad():
        found = model.embed_text(model.encode_text(text))
        for row in range(3):
            ids = text.ids[row, text.mask[row]][None]
            states = model.encode_text(Text(ids, torch.ones_like(ids).bool())).states[0]
            expected = torch.nn.functional.normalize(model.text_projection.linear(states.mean(0)), dim=0)
            assert torch.allclose(found[row], expected, atol=1e-6)


class TestContrast:
    @pytest.mark.parametrize(("alpha", "epoch"), [(0.0, 1.0), (0.4, EPOCH), (0.4, 3.0), (1.0, 1.0)])
    @pytest.mark.parametrize("ids", [[0, 1, 2, 3], [7, 7, 9, 7], [0, 1, 1, 2], [-1, -1, 4, -1]])
    def test_equals_loops(self, ids: list[int], alpha: float, epoch: float) -> None:
        """Repeated images, a caption under two images, unknown ids; in the batch and in a queue that is half full."""
        system = system_of(objectives=("itc",), alpha=alpha, shared_pairs=SHARED)
        captions = [5 if image in (0, 1) else UNKNOWN_ID if image < 0 else 10 + image for image in ids]
        stored = [1, 7, UNKNOWN_ID, 0, 50], [5, 17, UNKNOWN_ID, 11, 60]
        queued(system, *stored)
        batch = pairs(4, image_ids=ids, caption_ids=captions)
        loss = step(system, batch, epoch=epoch).losses["itc"]
        expected = itc_in_loops(system, batch, stored, UNDER, alpha * min(epoch, 1.0))
        assert loss.count == 4
        assert loss.total.item() == pytest.approx(expected, rel=1e-5)

    def test_an_empty_queue_is_no_queue(self) -> None:
        batch = pairs(6)
        sizes = [step(build("albef", queue_size=size), batch).losses["itc"].total for size in (0, 4, 64)]
        assert torch.equal(sizes[1], sizes[0]) or torch.allclose(sizes[1], sizes[0], rtol=1e-6)
        assert torch.allclose(sizes[2], sizes[0], rtol=1e-6)

    def test_an_id_of_the_official_queue_is_no_image_of_the_user(self) -> None:
        """-100 there means unknown: two of them are two images."""
        system = system_of(objectives=("itc",), alpha=0.0)
        official, unknown = (
            step(system, pairs(4, image_ids=[number] * 4, caption_ids=[number] * 4)).losses["itc"].total
            for number in (-100, UNKNOWN_ID)
        )
        distinct = step(system, pairs(4)).losses["itc"].total
        assert official == unknown == distinct

    def test_ids_are_ignored_where_asked_for(self) -> None:
        batch = pairs(4, image_ids=[7, 7, 9, 7])
        deaf = step(system_of(respect_ids=False), batch).losses
        assert torch.equal(deaf["itc"].total, step(system_of(), pairs(4)).losses["itc"].total)
        assert deaf["itm"].count == 12

    def test_micro_batches_of_a_step_contrast_with_all_its_keys(self) -> None:
        """4 + 4 pairs give the losses and gradients of 8, where nothing is mined."""
        whole, halves = pairs(8, image_ids=[0, 1, 2, 3, 3, 4, 5, 0]), []
        for rows in (slice(0, 4), slice(4, 8)):
            assert whole.text is not None
            parts = {
                key: value[rows] for key, value in vars(whole).items() if isinstance(value, Tensor) and key != "text"
            }
            halves.append(Batch(**parts, text=Text(whole.text.ids[rows], whole.text.mask[rows])))
        results = []
        for batches in ([whole], halves):
            system = system_of(objectives=("itc", "mlm"))
            queued(system, [3, 9], [0, 1])
            terms = [system.terms(batch, draws(batch)) for batch in batches]
            counts = {key: sum(term[key] for term in terms) for key in terms[0]}
            lessons = [system.teach(batch) for batch in batches]
            totals = dict.fromkeys(counts, 0.0)
            for own, batch in enumerate(batches):
                out = system(batch, lessons, own, Clock(0, 10, EPOCH), draws(batch))
                torch.stack([loss.total / counts[key] for key, loss in out.losses.items()]).sum().backward()
                totals = {key: totals[key] + loss.total.item() / counts[key] for key, loss in out.losses.items()}
            results.append((totals, [p.grad for n, p in system.model.named_parameters() if not n.startswith("match")]))
        (one, gradients), (two, summed) = results
        assert two == pytest.approx(one, rel=1e-5)
        for ours, theirs in zip(gradients, summed, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


class TestMatching:
    @pytest.mark.parametrize("ids", [[0, 1, 2, 3], [7, 7, 9, 7], [5, 5, 5, 5]])
    def test_equals_single_pairs(self, ids: list[int]) -> None:
        """Own pairs are matches; each text with its mined image and each image with its mined text are none."""
        system = system_of(objectives=("itm",))
        batch = pairs(4, image_ids=ids)
        images_of, texts_of = [1, 2, 3, 2], [2, 2, 0, 2]
        choices = GivenDraws(
            mined={"image_for_text": torch.tensor(images_of), "text_for_image": torch.tensor(texts_of)}
        )
        loss = step(system, batch, choices=choices).losses["itm"]
        scored = [(row, row, 1) for row in range(4)]
        if len(set(ids)) > 1:
            scored += [(row, images_of[row], 0) for row in range(4)]
            scored += [(texts_of[row], row, 0) for row in range(4)]
        assert loss.count == len(scored)
        assert loss.total.item() == pytest.approx(match_in_loops(system.model, batch, scored), rel=1e-5)

    def test_a_caption_of_both_images_is_nobodys_negative(self) -> None:
        """Text 0 fits both images: it has no negative, nor has image 1; text 1 and image 0 are each other's."""
        system = system_of(objectives=("itm",), shared_pairs=SHARED)
        batch = pairs(2, image_ids=[0, 1], caption_ids=[5, 1])
        loss = step(system, batch).losses["itm"]
        expected = match_in_loops(system.model, batch, [(0, 0, 1), (1, 1, 1), (1, 0, 0), (1, 0, 0)])
        assert loss.count == 4 and loss.total.item() == pytest.approx(expected, rel=1e-5)

    def test_weights_are_the_softmax_over_other_images(self) -> None:
        system, batch = system_of(objectives=("itm",)), pairs(4, image_ids=[7, 7, 9, 4])
        none = torch.zeros(4, dtype=torch.long)
        choices = GivenDraws(mined={"image_for_text": none, "text_for_image": none})
        step(system, batch, choices=choices)
        with torch.no_grad():
            images, texts = features(system.model, batch)
            taught_images, taught_texts = features(system.teacher.model, batch)
        for name, queries, keys in (
            ("text_for_image", images, taught_texts),
            ("image_for_text", texts, taught_images),
        ):
            for row, others in enumerate([[2, 3], [2, 3], [0, 1, 3], [0, 1, 2]]):
                mass = {k: math.exp(float(queries[row] @ keys[k]) / 0.2) for k in others}
                expected = [mass.get(k, 0.0) / sum(mass.values()) for k in range(4)]
                assert choices.weights[name][row].tolist() == pytest.approx(expected, abs=1e-5)

    def test_random_negatives_are_even(self) -> None:
        system, batch = system_of(objectives=("itm",), negatives="random"), pairs(4, image_ids=[7, 7, 9, 4])
        none = torch.zeros(4, dtype=torch.long)
        choices = GivenDraws(mined={"image_for_text": none, "text_for_image": none})
        step(system, batch, choices=choices)
        expected = torch.tensor([[0, 0, 3, 3], [0, 0, 3, 3], [2, 2, 0, 2], [2, 2, 2, 0]]) / 6
        for weights in choices.weights.values():
            assert torch.allclose(weights, expected)

    def test_negative_texts_from_the_queue(self) -> None:
        """Each image takes a caption of an earlier batch, longer or shorter than those of its own."""
        system = system_of(objectives=("itm",), text_negatives="queue")
        earlier, batch = pairs(5, seed=3, length=12, image_ids=[10, 11, 12, 13, 14]), pairs(4)
        system.after_step([step(system, earlier).carry])
        images_of, texts_of = [1, 2, 3, 2], [4, 8, 6, 1]  # 4 and above: places in the queue
        mined = {"image_for_text": torch.tensor(images_of), "text_for_image": torch.tensor(texts_of)}
        loss = step(system, batch, choices=GivenDraws(mined=mined)).losses["itm"]
        assert earlier.text is not None and batch.text is not None and batch.images is not None
        every = Batch(images=batch.images, text=join_ids(batch.text, earlier.text))
        scored = [(row, row, 1) for row in range(4)] + [(row, images_of[row], 0) for row in range(4)]
        scored += [(texts_of[row], row, 0) for row in range(4)]
        assert loss.count == 12
        assert loss.total.item() == pytest.approx(match_in_loops(system.model, every, scored), rel=1e-5)

    @pytest.mark.parametrize("negatives", ["mined", "random"])
    def test_the_queue_offers_no_true_caption_no_empty_slot_and_none_it_cannot_read(self, negatives: str) -> None:
        system = system_of(objectives=("itm",), text_negatives="queue", negatives=negatives, shared_pairs=SHARED)
        queued(system, [20, 21], [20, 21])  # as loaded from a checkpoint: no captions
        earlier = pairs(4, seed=3, image_ids=[0, 1, 2, 9], caption_ids=[30, 5, 32, 39])
        system.after_step([step(system, earlier).carry])
        none = torch.zeros(3, dtype=torch.long)
        choices = GivenDraws(mined={"image_for_text": none, "text_for_image": none})
        step(system, pairs(3, image_ids=[0, 1, 7], caption_ids=[40, 41, 42]), choices=choices)
        weights = choices.weights["text_for_image"]
        offered = [[1, 2, 7, 8], [0, 2, 5, 7, 8], [0, 1, 5, 6, 7, 8]]  # caption 5 is true of images 0 and 1
        assert [row.nonzero().flatten().tolist() for row in weights] == offered
        assert torch.allclose(weights.sum(1), torch.ones(3))
        assert choices.weights["image_for_text"].shape == (3, 3)

    def test_one_image_leaves_the_positives(self) -> None:
        out = step(system_of(objectives=("itm",)), pairs(4, image_ids=[5] * 4))
        assert out.losses["itm"].count == 4
        assert out.metrics["itm_negative_accuracy"].count == 0 and out.metrics["near_negatives"].count == 0

    def test_a_constant_head(self) -> None:
        """One true pair to two false ones: the best constant answer costs 0.6365 nats and is never right on a match."""
        system = system_of(objectives=("itm",))
        with torch.no_grad():
            system.model.match_head.weight.zero_()
            system.model.match_head.bias.copy_(torch.tensor([math.log(2.0), 0.0]))
        out = step(system, pairs(8))
        loss = out.losses["itm"]
        assert (loss.total / loss.count).item() == pytest.approx(0.6365, abs=5e-5)
        positive, negative = out.metrics["itm_positive_accuracy"], out.metrics["itm_negative_accuracy"]
        assert (positive.total, positive.count) == (0, 8) and (negative.total, negative.count) == (16, 16)


class TestMaskedWords:
    @pytest.mark.parametrize(("alpha", "epoch"), [(0.0, 1.0), (0.4, EPOCH), (1.0, 1.0)])
    def test_equals_single_texts(self, alpha: float, epoch: float) -> None:
        """(1 - alpha) x the hard label + alpha x the teacher, which reads the same masked text and its own image."""
        system, batch = system_of(objectives=("mlm",), alpha=alpha, mask_probability=0.5), pairs(4)
        assert batch.text is not None and batch.images is not None
        masked = draws(batch).mask(batch, Masking(0.5, False, MASK, torch.arange(len(SPECIAL), WORDS)))
        loss = step(system, batch, epoch=epoch).losses["mlm"]
        share, expected, count = alpha * min(epoch, 1.0), 0.0, 0
        with torch.no_grad():
            for row in range(4):
                text = Text(masked.ids[[row]], batch.text.mask[[row]])
                logits = []
                for model in (system.model, system.teacher.model):
                    memory = model.remember(model.encode_image(batch.images[[row]]))
                    fused = model.fuse(model.encode_text(text), memory)
                    logits.append(model.predict(fused, torch.arange(text.ids.shape[1])))
                for place, label in enumerate(masked.labels[row].tolist()):
                    if label != IGNORED:
                        student, teacher = torch.log_softmax(logits[0][place], 0), torch.softmax(logits[1][place], 0)
                        expected -= float((1 - share) * student[label] + share * (teacher * student).sum())
                        count += 1
        assert loss.count == count > 4
        assert loss.total.item() == pytest.approx(expected, rel=1e-5)

    def test_nothing_masked_is_a_zero_that_stays_attached(self) -> None:
        system = build("albef", objectives=("mlm",), mask_probability=0.0)
        out = step(system, pairs(4))
        objective(out).backward()
        assert out.losses["mlm"].total == 0 and out.losses["mlm"].count == 0
        assert all(p.grad is not None and not p.grad.any() for p in system.model.mask_head.parameters())

    def test_the_order_of_the_batch_plays_no_part(self) -> None:
        system, batch = system_of(objectives=("itc", "mlm")), pairs(6, image_ids=[0, 1, 1, 2, 3, 4])
        order = torch.tensor([4, 2, 0, 5, 1, 3])
        assert batch.text is not None
        moved = {key: value[order] for key, value in vars(batch).items() if isinstance(value, Tensor)}
        text = Text(batch.text.ids[order], batch.text.mask[order])
        losses, other = step(system, batch).losses, step(system, Batch(**{**moved, "text": text})).losses
        for key in losses:
            assert losses[key].count == other[key].count
            assert torch.allclose(losses[key].total, other[key].total, rtol=1e-5)

    def test_switching_an_objective_off_shifts_no_draw(self) -> None:
        batch = pairs(6)
        whole = step(build("albef"), batch).losses
        for objectives in subsets("albef"):
            some = step(build("albef", objectives=objectives), batch).losses
            assert set(some) == set(objectives)
            assert all(torch.equal(some[key].total, whole[key].total) for key in some)


class TestBetweenSteps:
    @pytest.mark.parametrize("objectives", [("itc", "itm", "mlm"), ("itc", "itm")], ids=["pretraining", "retrieval"])
    @pytest.mark.parametrize(("value", "clamped"), [(1e4, 0.5), (1e-9, 0.001), (-1.0, 0.001), (0.3, 0.3)])
    def test_the_temperature_is_clamped_in_every_phase(
        self, objectives: tuple[str, ...], value: float, clamped: float
    ) -> None:
        system = build("albef", objectives=objectives)
        assert 1 / system.model.temperature.item() == pytest.approx(14.2857, abs=1e-3)  # at the start
        with torch.no_grad():
            system.model.temperature.fill_(value)
        system.before_step()
        assert system.model.temperature.item() == pytest.approx(clamped)
        assert all(loss.total.isfinite() for loss in step(system, pairs(3)).losses.values())

    def test_the_clamp_can_be_switched_off(self) -> None:
        system = build("albef", clamp_temperature=False)
        with torch.no_grad():
            system.model.temperature.fill_(2.0)
        system.before_step()
        assert system.model.temperature == 2.0

    def test_the_teacher_moves_before_the_step(self) -> None:
        system = build("albef", momentum=0.9)
        before = snapshot(system.teacher.model)
        with torch.no_grad():
            for parameter in system.model.parameters():
                parameter.add_(1.0)
        system.before_step()
        for name, value in system.teacher.model.state_dict().items():
            assert torch.allclose(value, before[name] + 0.1, atol=1e-5), name

    @pytest.mark.parametrize("dropout", [False, True])
    def test_the_teacher_has_no_dropout_unless_asked_for(self, dropout: bool) -> None:
        config = replace(TINY["albef"].config, text=replace(TEXT, dropout=0.5))
        system, batch = build("albef", config=config, teacher_dropout=dropout), pairs(4)
        assert system.training
        same = torch.equal(system.teach(batch).keys.texts, system.teach(batch).keys.texts)
        assert same is not dropout

    def test_the_queue_takes_the_teachers_features_with_their_ids(self) -> None:
        system = system_of(queue_size=6)
        batches = [pairs(4, image_ids=[1, 2, 3, 4]), pairs(4, seed=1, image_ids=[5, 6, 7, 8])]
        lessons = [system.teach(batch) for batch in batches]
        outs = [system(batch, lessons, i, Clock(0, 9, EPOCH), draws(batch)) for i, batch in enumerate(batches)]
        assert not system.queue.filled.any()
        system.after_step([out.carry for out in outs])
        assert system.queue.image_ids.tolist() == [7, 8, 3, 4, 5, 6] and system.queue.filled.all()
        with torch.no_grad():
            images, texts = features(system.teacher.model, batches[1])
        assert torch.allclose(system.queue.images[:2], images[2:]) and torch.allclose(system.queue.texts[4:], texts[:2])
