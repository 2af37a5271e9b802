"""Percentages as horizontal bars, several to a row; plain HTML, so that text keeps its size on every screen."""

from collections.abc import Mapping

from alignfuse.report.axis import Number
from alignfuse.report.markup import Markup, tag

Rows = Mapping[str, Mapping[str, Number]]  # row -> name of the bar -> percent


def bar_chart(title: str, rows: Rows, *, chance: Number | None = None) -> Markup:
    """Bars of 0 to 100%, the same names in each row in the same colours; `chance` is marked by a line."""
    names = list(dict.fromkeys(name for bars in rows.values() for name in bars))
    keys = [tag("span", tag("i", class_=f"swatch s{place}"), name) for place, name in enumerate(names, start=1)]
    if chance is not None:
        keys.append(tag("span", tag("i", class_="swatch chance"), f"chance, {chance:g}%"))
    legend = tag("p", *(keys if len(keys) > 1 else []), class_="legend")
    drawn = [_row(row, bars, names, chance) for row, bars in rows.items()]
    return tag("figure", tag("figcaption", tag("strong", title), legend), *drawn, class_="chart bars")


def bar(percent: Number, colour: str, label: str) -> Markup:
    """One bar with its label behind it."""
    return tag("div", tag("i", class_=colour, style=f"width:{percent:.1f}%"), tag("b", label), class_="bar")


def _row(row: str, bars: Mapping[str, Number], names: list[str], chance: Number | None) -> Markup:
    drawn = [bar(bars[name], f"s{place}", f"{bars[name]:.0f}") for place, name in enumerate(names, start=1)]
    line = [] if chance is None else [tag("i", class_="line", style=f"left:{chance:g}%")]
    return tag("div", tag("span", row), tag("div", *line, *drawn, class_="group"), class_="row")
