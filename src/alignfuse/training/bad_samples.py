"""Samples that cannot be read: counted over all ranks, listed once each, and too many of them end the run."""

import itertools
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alignfuse.data.collate import Bad, OnBad
from alignfuse.errors import UserError
from alignfuse.files import writing
from alignfuse.training import distributed
from alignfuse.wording import counted

logger = logging.getLogger(__name__)
FEWEST = 100  # the share is taken of at least so many samples (of the whole set if smaller), not of the first batch


class BadSamples:
    """bad_samples.jsonl and the decision whether to go on."""

    def __init__(self, out: Path, *, on_bad: OnBad, max_share: float, samples: int) -> None:
        self.path = out / "bad_samples.jsonl"
        self.on_bad = on_bad
        self.max_share = max_share
        self.fewest = min(samples, FEWEST)
        self.seen = 0
        self.count = 0
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        self.listed = {Bad(**json.loads(line)) for line in lines}

    def take(self, bad: Sequence[Bad], seen: int) -> None:
        """Count what the ranks met in one update (`seen` samples, bad ones included); a UserError ends the run."""
        totals = distributed.total_counts({"bad": len(bad), "seen": seen})
        self.seen += totals["seen"]
        self.count += totals["bad"]
        if not totals["bad"]:
            return
        everywhere = list(itertools.chain.from_iterable(distributed.collect(list(bad))))
        first = everywhere[0]
        if self.on_bad == "raise":
            raise UserError(f"{first.path} ({first.row}): {first.reason}; on_bad=skip leaves such samples out")
        if not self.listed:
            logger.warning("%s (%s): %s; such samples are listed in %s", first.path, first.row, first.reason, self.path)
        self._list(everywhere)
        if self.count > self.max_share * max(self.seen, self.fewest):
            raise UserError(
                f"{self.count:,} of {counted(self.seen, 'sample')} could not be read, "
                f"more than max_bad_share={self.max_share:g}; "
                f"the first: {first.path} ({first.row}): {first.reason}; all are listed in {self.path}"
            )

    def _list(self, bad: Sequence[Bad]) -> None:
        new = [item for item in dict.fromkeys(bad) if item not in self.listed]
        self.listed.update(new)
        if distributed.is_main():
            with writing(self.path), self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.writelines(json.dumps(item._asdict(), ensure_ascii=False) + "\n" for item in new)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"seen": self.seen, "count": self.count}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.seen, self.count = int(state["seen"]), int(state["count"])
