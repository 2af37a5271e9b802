"""What the demo measures on held-out scenes.

Shapes: T captions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Int64
from torch import Tensor

from alignfuse.api import Pipeline
from alignfuse.data.batches import ImageBatches, TextBatches
from alignfuse.data.records import Record
from alignfuse.recipes.demo_config import DemoConfig
from alignfuse.recipes.understanding import Understanding, understanding
from alignfuse.search.index import Index
from alignfuse.search.sources import images_of_pairs
from alignfuse.tasks.ranking import Ranking
from alignfuse.tasks.retrieval import RetrievalConfig, rank
from alignfuse.tasks.retrieval_report import RetrievalReport, report
from alignfuse.world.captions import Caption, captions
from alignfuse.world.sampling import Sample
from alignfuse.world.scenes import Scene


@dataclass(frozen=True)
class HeldOut:
    """Held-out scenes as they were written to disk, each with its first captions."""

    records: Sequence[Record]
    scenes: Sequence[Scene]

    @classmethod
    def of(cls, records: Sequence[Record], samples: Sequence[Sample], *, captions_each: int) -> "HeldOut":
        """The records with what is known of their scenes."""
        scene_of = {sample.id: sample.scene for sample in samples}
        kept = [replace(record, captions=record.captions[:captions_each]) for record in records]
        return cls(kept, [scene_of[record.id] for record in kept])

    @cached_property
    def texts(self) -> list[str]:
        """All captions."""
        return [caption for record in self.records for caption in record.captions]

    @cached_property
    def image_of(self) -> Int64[Tensor, " T"]:
        """Number of the scene of each caption."""
        return torch.tensor([number for number, record in enumerate(self.records) for _ in record.captions])

    @cached_property
    def said(self) -> list[Caption]:
        """What each caption claims."""
        known = [{caption.text: caption for caption in captions(scene)} for scene in self.scenes]
        return [known[image][text] for image, text in zip(self.image_of.tolist(), self.texts, strict=True)]


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Everything that was measured, and what examples are drawn from."""

    pipe: Pipeline
    held_out: HeldOut
    ranking: Ranking
    retrieval: RetrievalReport
    understanding: Understanding
    index: Index  # of the held-out images


def find(pipe: Pipeline, held_out: HeldOut, config: DemoConfig) -> Findings:
    """Retrieval by ITC and re-ranked by ITM, and the probes."""
    ranking = rank(
        pipe.model,
        ImageBatches([record.image for record in held_out.records], pipe.preprocessing),
        TextBatches(held_out.texts, pipe.tokenizer),
        held_out.image_of,
        config=RetrievalConfig(k=config.k, score="itc+itm", itc_weight=pipe.itc_weight),
        device=pipe.device,
    )
    return Findings(
        pipe=pipe,
        held_out=held_out,
        ranking=ranking,
        retrieval=report(ranking, checkpoint=pipe.name, split="test"),
        understanding=understanding(pipe, held_out.scenes, per_scene=config.masked_words, pairs=config.pairs),
        index=pipe.embed(images_of_pairs(list(held_out.records))),
    )
