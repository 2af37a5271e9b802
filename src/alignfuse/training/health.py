"""Signs in the metrics that matching does not learn."""

import logging
import math
from collections.abc import Mapping

from alignfuse.training.step import Mean

logger = logging.getLogger(__name__)
PATIENCE = 400  # steps of constant answers before the warning: the first few hundred of any run are so


def answers_constantly(means: Mapping[str, Mean]) -> bool:
    """Whether ITM gives every pair the same answer.

    Such a head's loss is the entropy of the labels (0.6365 nats at one positive to two negatives), and it is right on
    all pairs of one label and on none of the other.
    """
    try:
        loss = float(means["loss/itm"])
        positive, negative = means["itm_positive_accuracy"], means["itm_negative_accuracy"]
    except KeyError:
        return False
    if not positive.terms or not negative.terms:
        return False
    share = positive.terms / (positive.terms + negative.terms)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    low, high = sorted((float(positive), float(negative)))
    return abs(loss - entropy) < 0.05 * entropy and low < 0.05 and high > 0.95


class MatchingWatch:
    """Warns, once each time it begins, when ITM has answered constantly for `PATIENCE` steps."""

    def __init__(self) -> None:
        self.steps = 0

    def look(self, means: Mapping[str, Mean], steps: int) -> None:
        """Take in the means of the last `steps` steps."""
        if not answers_constantly(means):
            self.steps = 0
            return
        before, self.steps = self.steps, self.steps + steps
        if before < PATIENCE <= self.steps:
            logger.warning(
                "ITM has given every pair the same answer for %d steps (loss %.4f, the entropy of its labels): check "
                "that captions fit their images and that the text encoder knows their language, or train longer with a "
                "lower optimizer.lr",
                self.steps,
                float(means["loss/itm"]),
            )
