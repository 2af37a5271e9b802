"""What a retrieval evaluation tells: recalls in percent, with everything needed to read them."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from alignfuse.metrics.recall import Recall, RecallBothWays, recall
from alignfuse.tasks.ranking import Direction, Ranking, Score
from alignfuse.wording import counted


@dataclass(frozen=True, kw_only=True)
class RetrievalReport:
    """Results of one evaluation. `recalls` holds those of ITC alone and, where pairs were fused, of every order."""

    checkpoint: str
    split: str
    resolution: tuple[int, int]
    score: Score  # what the final order is by
    itc_weight: float  # of the cosine in itc+itm
    k_image_to_text: int  # length of the shortlists that were re-ranked
    k_text_to_image: int
    images: int
    texts: int
    captions_per_image: tuple[int, int]  # fewest, most
    pairs_fused: int
    seconds: dict[str, float]
    recalls: dict[Score, RecallBothWays]

    @property
    def final(self) -> RecallBothWays:
        """The recalls of the final order."""
        return self.recalls[self.score]

    def to_dict(self) -> dict[str, object]:
        """For machines."""
        return {
            "task": "retrieval",
            "unit": "percent",
            "checkpoint": self.checkpoint,
            "split": self.split,
            "resolution": list(self.resolution),
            "score": self.score,
            "itc_weight": self.itc_weight,
            "k": {"image_to_text": self.k_image_to_text, "text_to_image": self.k_text_to_image},
            "counts": {
                "images": self.images,
                "texts": self.texts,
                "captions_per_image": {"min": self.captions_per_image[0], "max": self.captions_per_image[1]},
                "pairs_fused": self.pairs_fused,
            },
            "recall": {score: both.to_dict() for score, both in self.recalls.items()},
            "seconds": self.seconds,
        }

    def table(self) -> str:
        """For people."""
        fewest, most = self.captions_per_image
        captions = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        rows, columns = self.resolution
        lines = [
            f"retrieval, split {self.split}: {counted(self.images, 'image')}, "
            f"{counted(self.texts, 'text')} ({captions} per image)",
            f"checkpoint {self.checkpoint}, {rows} x {columns} pixels",
            "",
            *self._recall_lines(),
            "",
            "mean recall: " + ", ".join(f"{score} {both.mean:.1f} %" for score, both in self.recalls.items()),
            *self._work_lines(),
        ]
        return "\n".join(lines)

    def _recall_lines(self) -> Iterator[str]:
        counts = list(self.final.image_to_text.at)
        heads = [*(f"R@{count}" for count in counts), "mean", "median rank"]
        yield f"{'':15}{'order':10}{'k':>6}" + "".join(f"{head:>{_width(head)}}" for head in heads)
        for name, k, ways in (
            ("image to text", self.k_image_to_text, {by: both.image_to_text for by, both in self.recalls.items()}),
            ("text to image", self.k_text_to_image, {by: both.text_to_image for by, both in self.recalls.items()}),
        ):
            for score, way in ways.items():
                cells = [f"{value:.1f} %" for value in (*way.at.values(), way.mean)] + [f"{way.median_rank:g}"]
                shortlist = "-" if score == "itc" else str(k)
                yield f"{name:15}{score:10}{shortlist:>6}" + "".join(
                    f"{cell:>{_width(head)}}" for cell, head in zip(cells, heads, strict=True)
                )

    def _work_lines(self) -> Iterator[str]:
        if self.pairs_fused:
            rate = self.pairs_fused / max(self.seconds["re-rank"], 1e-9)
            yield f"re-ranked {self.pairs_fused:,} distinct pairs, {rate:,.0f} pairs/s"
            yield f"itc+itm = {self.itc_weight:.3g} x cosine + match logit"
        yield "seconds: " + ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in self.seconds.items())


def report(ranking: Ranking, *, checkpoint: str, split: str) -> RetrievalReport:
    """The recalls of a ranking, by ITC alone and in the final order."""
    image_of = ranking.text_to_image.owner
    images = ranking.image_to_text.owner
    captions = torch.bincount(image_of[image_of >= 0], minlength=len(images))
    scores: list[Score] = ["itc"] if ranking.score == "itc" else ["itc", "itm", "itc+itm"]
    return RetrievalReport(
        checkpoint=checkpoint,
        split=split,
        resolution=ranking.resolution,
        score=ranking.score,
        itc_weight=ranking.image_to_text.itc_weight,
        k_image_to_text=ranking.image_to_text.shortlist.shape[1],
        k_text_to_image=ranking.text_to_image.shortlist.shape[1],
        images=len(images),
        texts=len(image_of),
        captions_per_image=(int(captions.min()), int(captions.max())),
        pairs_fused=ranking.pairs_fused,
        seconds=ranking.seconds,
        recalls={
            score: RecallBothWays(
                image_to_text=_recall(ranking.image_to_text, score),
                text_to_image=_recall(ranking.text_to_image, score),
            )
            for score in scores
        },
    )


def _recall(way: Direction, score: Score) -> Recall:
    return recall(way.ranks(score), candidates=len(way.owner_of_candidate))


def _width(head: str) -> int:
    return max(len(head), len("100.0 %")) + 2
