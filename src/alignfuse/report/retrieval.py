"""The table of a retrieval evaluation: the order by ITC and the final one, in both directions."""

from collections.abc import Iterator

from alignfuse.metrics.recall import Recall
from alignfuse.report.markup import Content, Markup, join, tag
from alignfuse.report.page import Section
from alignfuse.tasks.retrieval_report import RetrievalReport

ORDERS = {"itc": "by ITC", "itm": "re-ranked by ITM", "itc+itm": "re-ranked by ITC + ITM"}


def retrieval_section(found: RetrievalReport, *, lead: Content = "") -> Section:
    """Recalls in percent; below those of the final order, what re-ranking added."""
    heads = [f"R@{count}" for count in found.final.image_to_text.at]
    head = tag("tr", *(tag("th", name) for name in ("", *heads, "mean", "median rank")))
    rows = [
        *_rows("Image to text", {score: both.image_to_text for score, both in found.recalls.items()}),
        *_rows("Text to image", {score: both.text_to_image for score, both in found.recalls.items()}),
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows), class_="recalls")
    rows_, columns = found.resolution
    note = (
        f"{found.images:,} images and {found.texts:,} texts of the split {found.split}, {rows_} x {columns} pixels, "
        f"percent. Shortlists of {found.k_image_to_text} texts and {found.k_text_to_image} images; "
        f"{found.pairs_fused:,} pairs went through the fusion encoder."
    )
    return Section("Retrieval", lead, join(tag("div", table, class_="scroll"), tag("p", note, class_="note")))


def _rows(direction: str, recalls: dict[str, Recall]) -> Iterator[Markup]:
    first = next(iter(recalls.values()))
    yield tag("tr", tag("th", direction, colspan="6", scope="rowgroup"), class_="direction")
    for score, recall in recalls.items():
        cells = [_cell(value, before) for value, before in zip(_figures(recall), _figures(first), strict=True)]
        rank = tag("td", f"{recall.median_rank:g}")
        yield tag("tr", tag("th", ORDERS[score], scope="row"), *cells, rank, class_="" if recall is first else "final")


def _figures(recall: Recall) -> list[float]:
    return [*recall.at.values(), recall.mean]


def _cell(value: float, before: float) -> Markup:
    change = value - before
    shown = tag("small", f"{change:+.1f}", class_="up" if change > 0 else "down") if change else Markup()
    return tag("td", f"{value:.1f}", shown)
