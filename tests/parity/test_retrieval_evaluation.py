"""Evaluation of the official retrieval code: features, similarity, re-ranked score matrices, recall at 1."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from alignfuse.blocks.tokens import Text
from alignfuse.tasks.ranking import Direction
from alignfuse.tasks.retrieval import RetrievalConfig, evaluate, rank

from .case import Case


@pytest.fixture(scope="module")
def case(shared: Path) -> Case:
    return Case(shared / "parity/albef/retrieval")


def official_matrix(way: Direction) -> Tensor:
    """All pairs, as the official code lays them out: -100 outside the shortlists."""
    assert way.itm is not None
    return torch.full((len(way.owner), len(way.owner_of_candidate)), -100.0).scatter(1, way.shortlist, way.itm)


def test_evaluation(case: Case) -> None:
    model = case.convert().model
    images = torch.split(case["in.eval.image_u8"], 4)
    texts = [Text(case["in.eval.input_ids"][rows], case["in.eval.attention_mask"].bool()[rows]) for rows in
             (slice(0, 3), slice(3, 11))]  # fmt: skip
    image_of = case["in.eval.txt2img"]
    config = RetrievalConfig(k=case.config["k_test"], texts_at_once=2)
    ranking = rank(model, images, texts, image_of, config=config)
    case.agree("out.eval.score_i2t", official_matrix(ranking.image_to_text))
    case.agree("out.eval.score_t2i", official_matrix(ranking.text_to_image))
    similarity = case["out.eval.similarity"]
    for way, expected in ((ranking.image_to_text, similarity), (ranking.text_to_image, similarity.T)):
        best = expected.topk(config.k)
        assert torch.equal(way.shortlist, best.indices)
        assert way.itc.numpy() == pytest.approx(best.values.numpy(), abs=5e-5)

    report = evaluate(model, images, texts, image_of, checkpoint="official", split="test", config=config)
    expected = case.read("expected")["eval_metrics"]
    assert report.final.image_to_text.at[1] == pytest.approx(expected["txt_r1"])
    assert report.final.text_to_image.at[1] == pytest.approx(expected["img_r1"])


def test_features_and_similarity(case: Case) -> None:
    model = case.convert().model
    text = Text(case["in.eval.input_ids"], case["in.eval.attention_mask"].bool())
    with torch.no_grad():
        images = model.embed_image(model.encode_image(case["in.eval.image_u8"]))
        texts = model.embed_text(model.encode_text(text))
        case.agree("out.eval.image_feat", images)
        case.agree("out.eval.text_feat", texts)
        case.agree("out.eval.similarity", model.similarity(images, texts))
