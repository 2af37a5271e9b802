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
LOSS, VALIDATION = "loss/", "val/"
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
    """One chart for each loss and each figure of the validation; `references` by name of the loss."""
    names = list(dict.fromkeys(key.removeprefix(LOSS) for line in log for key in line if key.startswith(LOSS)))
    charts = []
    for colour, name in enumerate(names, start=1):
        points = _points(log, LOSS + name)
        series = Series(name, points, colour, window=len(points) // SMOOTH)
        reference = (references or {}).get(name)
        charts.append(line_chart(TITLES.get(name, f"{name} loss"), [series], x="step", y="loss", reference=reference))
    for title, keys in _validations(log).items():
        found = [Series(name, _points(log, key), colour) for colour, (name, key) in enumerate(keys.items(), start=1)]
        charts.append(line_chart(title, found, x="step", y="percent"))
    return Section("Training", lead, tag("div", *charts, class_="charts"))


def _validations(log: Log) -> dict[str, dict[str, str]]:
    """What validation found: title of a chart -> name of a line -> key. The orders of retrieval share a chart."""
    charts: dict[str, dict[str, str]] = {}
    for key in dict.fromkeys(key for line in log for key in line if key.startswith(VALIDATION)):
        order, _, figure = key.removeprefix(VALIDATION).partition(" ")
        if order in ORDERS:
            charts.setdefault(f"Validation: {figure}", {})[ORDERS[order]] = key
        else:
            charts.setdefault("Validation", {})[key.removeprefix(VALIDATION)] = key
    return charts


def _points(log: Sequence[Mapping[str, Number]], key: str) -> list[Point]:
    return [(line["step"], line[key]) for line in log if key in line]
