"""The retrieval engine against slow re-statements on tables of scores."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from alignfuse.blocks.tokens import Text
from alignfuse.errors import UserError
from alignfuse.metrics.recall import image_to_text_ranks, text_to_image_ranks
from alignfuse.tasks.encoding import embed_images, embed_texts, inference
from alignfuse.tasks.progress import Progress, Stages
from alignfuse.tasks.ranking import Direction, Score
from alignfuse.tasks.reranking import match_pairs
from alignfuse.tasks.retrieval import RetrievalConfig, evaluate, rank
from alignfuse.tasks.token_store import ImageTokens, TextStoreWriter
from tests.tasks.table_model import DualTableModel, TableModel, picture_batches, text_batches

IMAGES, TEXTS = 23, 61


@pytest.fixture
def image_of() -> Tensor:
    """Uneven: every image has at least one text, the others are spread at random, in random order."""
    generator = torch.Generator().manual_seed(5)
    spread = torch.randint(IMAGES, (TEXTS - IMAGES,), generator=generator)
    return torch.cat([torch.arange(IMAGES), spread])[torch.randperm(TEXTS, generator=generator)]


@pytest.fixture
def model(image_of: Tensor) -> TableModel:
    generator = torch.Generator().manual_seed(6)
    images = torch.randn(IMAGES, 8, generator=generator)
    texts = images[image_of] + 1.2 * torch.randn(TEXTS, 8, generator=generator)
    logits = (images @ texts.T) + torch.randn(IMAGES, TEXTS, generator=generator)
    return TableModel(images, texts, logits)


def similarity(model: TableModel) -> Tensor:
    return model.image_table @ model.text_table.T


def obvious_ranks(itc: Tensor, final: Tensor, own: Tensor, k: int) -> list[int]:
    """Python's own sort: the k best by ITC first, ordered by `final`, then the rest by ITC."""
    places = []
    for itc_row, final_row, own_row in zip(itc.tolist(), final.tolist(), own.tolist(), strict=True):
        by_itc = sorted(range(len(itc_row)), key=lambda c: (itc_row[c], c), reverse=True)
        short = sorted(by_itc[:k], key=lambda c: (final_row[c], c), reverse=True)
        order = short + by_itc[k:]
        places.append(min(place for place, candidate in enumerate(order) if own_row[candidate]))
    return places


@pytest.mark.parametrize("score", ["itm", "itc+itm", "itc"])
@pytest.mark.parametrize("k", [1, 4, 1000])
def test_order_equals_the_obvious_one(model: TableModel, image_of: Tensor, score: Score, k: int) -> None:
    result = rank(
        model, picture_batches(IMAGES), text_batches(TEXTS), image_of, config=RetrievalConfig(score=score, k=k)
    )
    itc = similarity(model)
    final = {"itm": model.logits, "itc+itm": itc + model.logits, "itc": itc}[score]
    own = torch.arange(IMAGES)[:, None] == image_of
    assert result.image_to_text.ranks(score).tolist() == obvious_ranks(itc, final, own, k)
    assert result.text_to_image.ranks(score).tolist() == obvious_ranks(itc.T, final.T, own.T, k)
    assert torch.equal(result.image_to_text.ranks("itc"), image_to_text_ranks(itc, image_of))
    assert torch.equal(result.text_to_image.ranks("itc"), text_to_image_ranks(itc.T, image_of))


def test_scores_of_three_texts_by_hand() -> None:
    """One image; cosines 0.8, 0.6, 0; logits -0.1, 0.0, 9. With k = 2 the third text stays last whatever its logit."""
    model = TableModel(
        torch.tensor([[1.0, 0.0]]),
        torch.tensor([[0.8, 0.6], [0.6, 0.8], [0.0, 1.0]]),
        torch.tensor([[-0.1, 0.0, 9.0]]),
    )
    image_of = torch.tensor([-1, -1, 0])

    def order(score: Score) -> list[int]:
        way = rank(
            model, picture_batches(1), text_batches(3), image_of, config=RetrievalConfig(score=score, k=2)
        ).image_to_text
        assert way.ranks(score).tolist() == [2]
        return [int(way.shortlist[0, place]) for place in way.scores(score)[0].argsort(descending=True)]

    assert order("itc") == [0, 1]
    assert order("itm") == [1, 0]
    assert order("itc+itm") == [0, 1]  # 0.7 and 0.6


def test_chunks_change_nothing(model: TableModel, image_of: Tensor, tmp_path: Path) -> None:
    plain = rank(model, picture_batches(IMAGES, IMAGES), text_batches(TEXTS, TEXTS), image_of)
    small = RetrievalConfig(scores_at_once=100, texts_at_once=3, keep_bytes=200, scratch=tmp_path)
    model.largest_fusion = 0
    chunked = rank(model, picture_batches(IMAGES, 2), text_batches(TEXTS, 5), image_of, config=small)
    assert model.largest_fusion == 3
    for one, other in ((plain.image_to_text, chunked.image_to_text), (plain.text_to_image, chunked.text_to_image)):
        assert torch.equal(one.shortlist, other.shortlist)
        assert torch.equal(one.ranks("itm"), other.ranks("itm"))
        assert torch.equal(one.ranks("itc"), other.ranks("itc"))


def test_itc_keeps_its_precision_under_autocast(model: TableModel, image_of: Tensor) -> None:
    plain = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of)
    with torch.autocast("cpu", torch.bfloat16):
        low = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of)
    assert torch.equal(plain.image_to_text.itc, low.image_to_text.itc)
    assert torch.equal(plain.text_to_image.itc, low.text_to_image.itc)


def test_each_pair_is_scored_once_and_each_text_encoded_once(model: TableModel, image_of: Tensor) -> None:
    result = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of, config=RetrievalConfig(k=4))
    itc = similarity(model)
    wanted = {(image, text) for image in range(IMAGES) for text in itc[image].topk(4).indices.tolist()}
    wanted |= {(image, text) for text in range(TEXTS) for image in itc[:, text].topk(4).indices.tolist()}
    assert Counter(model.pairs) == Counter(wanted)
    assert result.pairs_fused == len(wanted) < 4 * (IMAGES + TEXTS)
    assert model.texts_encoded == list(range(TEXTS))
    assert model.images_encoded == list(range(IMAGES))  # their tokens fit the budget


def test_images_beyond_the_budget_are_encoded_again(model: TableModel, image_of: Tensor) -> None:
    one_batch = 7 * 5 * 4 * 4  # bytes of seven images' states
    config = RetrievalConfig(k=2, keep_bytes=one_batch)
    rank(model, picture_batches(IMAGES, 7), text_batches(TEXTS), image_of, config=config)
    assert model.images_encoded == [*range(IMAGES), *range(7, IMAGES)]
    with pytest.raises(TypeError, match="not a generator"):
        rank(model, (batch for batch in picture_batches(IMAGES)), text_batches(TEXTS), image_of)


def test_itc_alone_fuses_nothing(model: TableModel, image_of: Tensor) -> None:
    result = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of, config=RetrievalConfig(score="itc"))
    assert model.pairs == [] and result.image_to_text.itm is None
    with pytest.raises(ValueError, match="not re-ranked"):
        result.image_to_text.ranks("itm")


def test_a_model_without_fusion_needs_the_score_itc(model: TableModel, image_of: Tensor) -> None:
    dual = DualTableModel(model.image_table, model.text_table)
    with pytest.raises(UserError, match="DualTableModel has no fusion encoder"):
        rank(dual, picture_batches(IMAGES), text_batches(TEXTS), image_of)
    alone = rank(dual, picture_batches(IMAGES), text_batches(TEXTS), image_of, config=RetrievalConfig(score="itc"))
    both = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of)
    assert torch.equal(alone.text_to_image.ranks("itc"), both.text_to_image.ranks("itc"))


def test_several_embeddings_per_image(image_of: Tensor) -> None:
    generator = torch.Generator().manual_seed(7)
    model = DualTableModel(torch.randn(IMAGES, 3, 8, generator=generator), torch.randn(TEXTS, 8, generator=generator))
    config = RetrievalConfig(score="itc", scores_at_once=400)
    result = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of, config=config)
    best_of_three = torch.einsum("iqe,te->qit", model.image_table, model.text_table).amax(dim=0)
    assert torch.equal(result.image_to_text.ranks("itc"), image_to_text_ranks(best_of_three, image_of))
    assert torch.equal(result.text_to_image.ranks("itc"), text_to_image_ranks(best_of_three.T, image_of))


class LargestTensor(TorchDispatchMode):
    """Remembers how many elements the largest result of any operation has."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(part, Tensor):
                self.elements = max(self.elements, part.numel())
        return result


def test_memory_does_not_grow_with_images_times_texts() -> None:
    """120 images x 600 texts, k = 3: no result holds more than the larger of a chunk of scores and the shortlists."""
    images, texts, k, chunk = 120, 600, 3, 2_000
    generator = torch.Generator().manual_seed(8)
    image_of = torch.arange(texts) // 5
    table = torch.randn(images, 4, generator=generator)
    model = TableModel(table, table[image_of] + torch.randn(texts, 4, generator=generator), table @ table[image_of].T)
    pictures, sentences = picture_batches(images, 50), text_batches(texts, 100)
    with LargestTensor() as largest:
        rank(model, pictures, sentences, image_of, config=RetrievalConfig(k=k, scores_at_once=chunk))
    assert largest.elements <= max(chunk, (images + texts) * k, 3 * texts * 4)  # the last: states of all tokens


def test_report_names_units_and_settings(model: TableModel, image_of: Tensor) -> None:
    seen: list[Progress] = []
    report = evaluate(
        model,
        picture_batches(IMAGES),
        text_batches(TEXTS),
        image_of,
        checkpoint="runs/mine (step 1200)",
        split="test",
        config=RetrievalConfig(k=30),
        progress=seen.append,
    )
    result = json.loads(json.dumps(report.to_dict()))
    assert result["unit"] == "percent" and result["split"] == "test" and result["checkpoint"] == "runs/mine (step 1200)"
    assert result["resolution"] == [2, 4] and result["score"] == "itm"
    assert result["k"] == {"image_to_text": 30, "text_to_image": IMAGES}  # cut to what there is
    assert result["counts"]["images"] == IMAGES and result["counts"]["texts"] == TEXTS
    assert result["counts"]["captions_per_image"]["min"] == 1
    assert result["counts"]["captions_per_image"]["max"] == int(torch.bincount(image_of).max())
    assert set(result["recall"]) == {"itc", "itm", "itc+itm"}
    t2i = text_to_image_ranks(model.logits.T, image_of)  # all images are shortlisted
    assert result["recall"]["itm"]["text_to_image"]["R@5"] == pytest.approx(100 * float((t2i < 5).double().mean()))
    assert result["recall"]["itm"]["text_to_image"]["candidates"] == IMAGES

    stages = {progress.stage: progress for progress in seen}
    assert list(stages) == ["encode images", "encode texts", "rank by ITC", "re-rank"]
    assert stages["re-rank"].done == stages["re-rank"].total == result["counts"]["pairs_fused"] == len(model.pairs)
    assert stages["re-rank"].rate > 0 and stages["encode texts"].done == TEXTS


def test_table_prints_a_half_as_50_percent() -> None:
    """Two images with one text each; image 0 prefers its own text, image 1 too, but text 1 prefers image 0."""
    model = DualTableModel(torch.eye(2), torch.tensor([[1.0, 0.0], [0.9, 0.8]]))
    report = evaluate(
        model,
        picture_batches(2),
        text_batches(2),
        torch.arange(2),
        checkpoint="runs/mine",
        split="val",
        config=RetrievalConfig(score="itc"),
    )
    table = report.table()
    assert report.final.text_to_image.at[1] == 50.0
    row = next(line for line in table.splitlines() if line.startswith("text to image"))
    assert row.split()[:6] == ["text", "to", "image", "itc", "-", "50.0"]
    assert "split val: 2 images, 2 texts (1 per image)" in table and "2 x 4 pixels" in table and "runs/mine" in table


def test_bad_input_is_named(model: TableModel, image_of: Tensor) -> None:
    pictures, sentences = picture_batches(IMAGES), text_batches(TEXTS)
    with pytest.raises(UserError, match="k is 0"):
        RetrievalConfig(k=0)
    with pytest.raises(ValueError, match="61 texts, but image_of names the images of 60"):
        rank(model, pictures, sentences, image_of[:-1])
    with pytest.raises(ValueError, match="there are 7 images"):
        rank(model, pictures[:1], sentences, image_of)
    with pytest.raises(UserError, match="no images"):
        rank(model, [], sentences, image_of)
    with pytest.raises(UserError, match="no texts"):
        rank(model, pictures, [], image_of)
    model.logits[3] = float("nan")
    with pytest.raises(UserError, match="match logits that are not finite"):
        rank(model, pictures, sentences, image_of)
    model.text_table[4] = float("nan")
    with pytest.raises(UserError, match="text 4 an embedding"):
        rank(model, pictures, sentences, image_of)


def test_images_that_went_missing_are_noticed(model: TableModel) -> None:
    """The second reading of the images must give as many as the first."""
    writer = TextStoreWriter(scratch=None)
    writer.add(model.encode_text(text_batches(9)[0]))
    tokens = ImageTokens(model, picture_batches(7), budget=0)
    with pytest.raises(ValueError, match="7 images were given, but a pair asks for image 7"):
        match_pairs(model, tokens, writer.finish(), torch.tensor([0, 7]), torch.tensor([1, 2]), Stages(None))


def test_inference_switches_dropout_off_and_back() -> None:
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)))
    model[1].eval()  # a frozen part
    with inference(model):
        assert not any(part.training for part in model.modules()) and not torch.is_grad_enabled()
    assert [part.training for part in model.modules()] == [True, True, False, False] and torch.is_grad_enabled()


def test_embedding_streams_batches(model: TableModel) -> None:
    images = torch.cat(list(embed_images(model, (batch for batch in picture_batches(IMAGES)))))
    texts = torch.cat(list(embed_texts(model, iter(text_batches(TEXTS)))))
    assert torch.equal(images, model.image_table) and torch.equal(texts, model.text_table)


def test_texts_without_states_are_fused_by_ids(model: TableModel, image_of: Tensor) -> None:
    """Joint-sequence systems fuse ids: their encode_text leaves the states empty."""

    class ByIds(TableModel):
        def encode_text(self, text: Text) -> Text:
            return text

        def fuse(self, text: Text, memory: Tensor, image_of: Tensor | None = None, *, first_only: bool = False) -> Any:
            assert text.states is None
            return super().fuse(Text(text.ids, text.mask, text.ids.float()[..., None]), memory, image_of)

    other = ByIds(model.image_table, model.text_table, model.logits)
    one = rank(model, picture_batches(IMAGES), text_batches(TEXTS), image_of)
    two = rank(other, picture_batches(IMAGES), text_batches(TEXTS), image_of)
    assert torch.equal(one.text_to_image.ranks("itm"), two.text_to_image.ranks("itm"))


def test_the_weight_of_itc_in_the_sum() -> None:
    direction = Direction(
        shortlist=torch.tensor([[0, 1]]),
        itc=torch.tensor([[0.9, 0.5]]),
        itm=torch.tensor([[1.0, 3.0]]),
        owner=torch.tensor([0]),
        owner_of_candidate=torch.tensor([0, 1]),
        itc_ranks=torch.tensor([0]),
        itc_weight=10.0,
    )
    assert direction.scores("itc+itm").tolist() == [[10.0, 8.0]]
    assert direction.ranks("itc+itm").tolist() == [0] and direction.ranks("itm").tolist() == [1]
    assert replace(direction, itc_weight=1.0).ranks("itc+itm").tolist() == [1]
