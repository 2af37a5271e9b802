"""What came of the runs on the stamps: a table, the same for machines, and a page with pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from alignfuse.api import Pipeline, load
from alignfuse.data.readers import read_pairs
from alignfuse.data.records import Record
from alignfuse.data.splits import choose_split
from alignfuse.metrics.recall import RECALL_AT
from alignfuse.report.markup import Markup, join, tag
from alignfuse.report.page import Figure, Section, page
from alignfuse.report.picture import Mark
from alignfuse.report.search import Found, Query, search_section
from alignfuse.search.index import Hit, Index
from alignfuse.search.sources import image_at, images_of_pairs
from alignfuse.tasks.retrieval import RetrievalConfig

EVALUATION = RetrievalConfig(score="itc+itm", k=32)
ABOVE_SCRATCH, ABOVE_CHANCE = 2, 5  # what starting weights should be worth: so many times the mean recall
QUERIES, SHOWN = 6, 6  # queries of the page, images found for each
RECALLS = (f"{way} R@{k}" for way in ("image to text", "text to image") for k in RECALL_AT)
HEADS = ("arm", "seed", *RECALLS, "mean recall", "minutes")


class Outcome(NamedTuple):
    """A finished run and its retrieval on the held-out stamps."""

    arm: str
    seed: int
    steps: int
    minutes: float  # of training
    retrieval: dict[str, Any]  # RetrievalReport.to_dict()

    @property
    def mean_recall(self) -> float:
        """Over both directions and R@1, R@5, R@10, in percent, in the final order."""
        return float(self._final["mean_recall"])

    def cells(self) -> list[str]:
        """Under HEADS."""
        recalls = [self._final[way][f"R@{k}"] for way in ("image_to_text", "text_to_image") for k in RECALL_AT]
        return [self.arm, str(self.seed), *(f"{value:.1f}" for value in (*recalls, self.mean_recall, self.minutes))]

    @property
    def _final(self) -> dict[str, Any]:
        final: dict[str, Any] = self.retrieval["recall"][self.retrieval["score"]]
        return final


def chance(candidates: int) -> float:
    """Mean recall of a random order where each query has one right answer among so many."""
    return fmean(100 * min(k, candidates) / candidates for k in RECALL_AT)


def means(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """Mean recall of each arm over its seeds, and of chance."""
    arms = dict.fromkeys(run.arm for run in outcomes)
    found = {arm: fmean(run.mean_recall for run in outcomes if run.arm == arm) for arm in arms}
    return found | {"chance": chance(outcomes[0].retrieval["counts"]["images"])}


def conditions(outcomes: Sequence[Outcome]) -> dict[str, bool]:
    """Whether the packaged encoders are worth what they should be; nothing of an arm that was not run."""
    found = means(outcomes)
    limits = {"scratch": ABOVE_SCRATCH, "chance": ABOVE_CHANCE}
    return {
        f"packaged at least {times} times {other}": found["packaged"] >= times * found[other]
        for other, times in limits.items()
        if "packaged" in found and other in found
    }


def table(outcomes: Sequence[Outcome]) -> str:
    """Markdown: a row for each run, mean recall of the arms, and what holds."""
    lines = [f"| {' | '.join(cells)} |" for cells in (HEADS, ["---"] * len(HEADS), *(run.cells() for run in outcomes))]
    counts = outcomes[0].retrieval["counts"]
    averages = ", ".join(f"{name} {value:.1f}%" for name, value in means(outcomes).items())
    lines += ["", f"{counts['images']} images, {counts['texts']} texts, percent. Mean recall: {averages}."]
    lines += [f"{name}: {'yes' if holds else 'NO'}." for name, holds in conditions(outcomes).items()]
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """The same for machines, with everything that was measured."""
    runs = [run._asdict() | {"mean_recall": run.mean_recall} for run in outcomes]
    return {"mean_recall": means(outcomes), "conditions": conditions(outcomes), "runs": runs}


def document(out: Path, pairs: Path, outcomes: Sequence[Outcome]) -> str:
    """The page: the table, and queries with the images that the first run of each arm finds."""
    _, records = choose_split(read_pairs(pairs).records, "test")
    first = {run.arm: run for run in reversed(outcomes)}
    pipes = {arm: load(out / f"{arm}-{run.seed}") for arm, run in sorted(first.items())}
    indices = {arm: pipe.embed(images_of_pairs(records)) for arm, pipe in pipes.items()}
    asked = records[:: max(1, len(records) // QUERIES)][:QUERIES]
    queries = [query(record, records, pipes, indices) for record in asked]
    shown = ", ".join(f"{arm} with seed {first[arm].seed}" for arm in pipes)
    steps, found = outcomes[0].steps, means(outcomes)
    return page(
        "Stamps",
        eyebrow="AlignFuse, examples/stamps",
        lead=f"{steps:,} steps from random weights and from encoders that packages carry.",
        figures=[Figure(name, f"{value:.1f}%", "mean recall") for name, value in found.items()],
        sections=[
            Section("Retrieval", f"{len(records)} held-out images, each with its caption; percent.", _html(outcomes)),
            search_section(queries, lead=f"Held-out captions at regular places and the images found: {shown}."),
        ],
    )


def query(record: Record, records: Sequence[Record], pipes: dict[str, Pipeline], indices: dict[str, Index]) -> Query:
    """The best images of each arm for a caption."""
    text = record.captions[0]
    fitting = {other.id for other in records if text in other.captions}

    def mark(hit: Hit) -> Mark:
        return "own" if hit.record["id"] == record.id else "fits" if hit.record["id"] in fitting else ""

    def found(arm: str) -> Iterator[Found]:
        hits = pipes[arm].search(text, indices[arm], k=SHOWN, score=EVALUATION.score, shortlist=EVALUATION.k)
        return (Found(image_at(hit.record), f"{hit.itc:.2f}", mark(hit)) for hit in hits)

    note = f"Stands under {len(fitting)} of {len(records)} images; numbers are cosines."
    return Query(text, note, {arm: list(found(arm)) for arm in pipes}, record.image)


def _html(outcomes: Sequence[Outcome]) -> Markup:
    """The table of the page, and what holds."""
    head = tag("tr", *(tag("th", name) for name in HEADS))
    rows = [tag("tr", *(tag("td", cell) for cell in run.cells())) for run in outcomes]
    note = " ".join(f"{name}: {'yes' if holds else 'no'}." for name, holds in conditions(outcomes).items())
    return join(tag("div", tag("table", tag("thead", head), tag("tbody", *rows)), class_="scroll"), tag("p", note))
