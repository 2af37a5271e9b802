"""The warning that ITM predicts a constant."""

import logging
import math

import pytest

from alignfuse.training.health import PATIENCE, MatchingWatch, answers_constantly
from alignfuse.training.step import Mean


def means(loss: float, positive: float, negative: float) -> dict[str, Mean]:
    """Of a batch of 8 pairs with 16 negatives."""
    return {
        "loss/itm": Mean(24 * loss, 24),
        "itm_positive_accuracy": Mean(8 * positive, 8),
        "itm_negative_accuracy": Mean(16 * negative, 16),
    }


@pytest.mark.parametrize(
    ("loss", "positive", "negative", "constant"),
    [(0.6365, 0, 1, True), (0.64, 0, 1, True), (0.6365, 0.6, 0.7, False), (0.3, 0, 1, False), (0.6365, 1, 1, False)],
)
def test_constant_answers_are_recognised(loss: float, positive: float, negative: float, constant: bool) -> None:
    assert answers_constantly(means(loss, positive, negative)) is constant


def test_the_entropy_follows_the_mix_of_labels() -> None:
    even = {
        "loss/itm": Mean(math.log(2), 1),
        "itm_positive_accuracy": Mean(8, 8),
        "itm_negative_accuracy": Mean(0, 8),
    }
    assert answers_constantly(even)


def test_no_negatives_or_no_matching_is_no_complaint() -> None:
    assert not answers_constantly({"loss/itc": Mean(1, 1)})
    assert not answers_constantly({**means(0.6365, 0, 1), "itm_negative_accuracy": Mean(0, 0)})


def test_the_warning_comes_once_and_again_after_recovery(caplog: pytest.LogCaptureFixture) -> None:
    watch = MatchingWatch()
    with caplog.at_level(logging.WARNING):
        for _ in range(PATIENCE // 10 - 1):
            watch.look(means(0.6365, 0, 1), 10)
        assert not caplog.records
        for _ in range(5):
            watch.look(means(0.6365, 0, 1), 10)
        assert len(caplog.records) == 1
        assert "ITM has given every pair the same answer for 400 steps (loss 0.6365" in caplog.text
        watch.look(means(0.3, 0.8, 0.9), 10)
        watch.look(means(0.6365, 0, 1), PATIENCE)
        assert len(caplog.records) == 2
