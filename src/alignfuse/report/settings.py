"""What was run and how long it took, as tables of names and values."""

from collections.abc import Mapping

from alignfuse.report.markup import Content, Markup, tag
from alignfuse.report.page import Section


def settings_section(tables: Mapping[str, Mapping[str, str]], *, lead: Content = "") -> Section:
    """One table for each title."""
    return Section("Settings", lead, tag("div", *[_table(*named) for named in tables.items()], class_="charts"))


def _table(title: str, rows: Mapping[str, str]) -> Markup:
    lines = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in rows.items()]
    return tag("table", tag("caption", title), tag("tbody", *lines), class_="settings")
