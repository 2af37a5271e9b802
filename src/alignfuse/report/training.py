"""The course of a training run, from the metrics.jsonl that every run writes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from alignfuse.errors import UserError
from alignfuse.report.axis import Number
from alignfuse.report.lines import Reference, Series, line_chart
from alignfuse.report.markup import Content, tag
from alignfuse.report.page import Section
from alignfuse.report.plot import Point
from alignfuse.report.retrieval import ORDERS

Log = list[dict[str, Number]]
LOSS, VALIDATION, RECALL = "loss/", "val/", " mean recall"
TITLES = {
    "itc": "Contrastive loss (ITC)",
    "itm": "Matching loss (ITM)",
    "mlm": "Masked-language loss (MLM)",
}
SMOOTH = 40  # a smoothed point is the mean of about a twentieth of the line on each side


def read_log(run: Path) -> Log:
    """The lines of a run's metrics.jsonl."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise UserError(f"{run}: no metrics.jsonl there; give the directory of a run")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def training_section(log: Log, *, lead: Content = "", references: Mapping[str, Reference] | None = None) -> Section:
    """One chart for each loss, and one for what validation found; `references` by name of the loss."""
    names = list(dict.fromkeys(key.removeprefix(LOSS) for line in log for key in line if key.startswith(LOSS)))
    charts = []
    for colour, name in enumerate(names, start=1):
        points = _points(log, LOSS + name)
        series = Series(name, points, colour, window=len(points) // SMOOTH)
        reference = (references or {}).get(name)
        charts.append(line_chart(TITLES.get(name, f"{name} loss"), [series], x="step", y="loss", reference=reference))
    found = list(dict.fromkeys(key for line in log for key in line if key.startswith(VALIDATION)))
    if found:
        series_found = [
            Series(_validation_name(key), _points(log, key), colour) for colour, key in enumerate(found, start=1)
        ]
        charts.append(line_chart("Mean recall on validation images", series_found, x="step", y="percent"))
    return Section("Training", lead, tag("div", *charts, class_="charts"))


def _validation_name(key: str) -> str:
    """The order that a recall is of, as the retrieval table calls it."""
    name = key.removeprefix(VALIDATION)
    return ORDERS.get(name.removesuffix(RECALL), name)


def _points(log: Sequence[Mapping[str, Number]], key: str) -> list[Point]:
    return [(line["step"], line[key]) for line in log if key in line]
