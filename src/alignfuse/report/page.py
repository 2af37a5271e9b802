"""The page: a head with the main numbers, then sections. Nothing in it points outside of the file."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from alignfuse.report.markup import Content, Markup, tag, void


class Figure(NamedTuple):
    """One of the main numbers of a run."""

    name: str
    value: str
    note: str


class Section(NamedTuple):
    """A part of the page. `lead` says in a sentence or two what is to be seen."""

    title: str
    lead: Content
    body: Markup


def page(title: str, *, eyebrow: str, lead: Content, figures: Sequence[Figure], sections: Sequence[Section]) -> str:
    """A whole HTML document."""
    links = [tag("a", section.title, href=f"#{_anchor(section)}") for section in sections]
    tiles = [
        tag(
            "div",
            tag("dt", figure.name),
            tag("dd", figure.value, class_="value"),
            tag("dd", figure.note, class_="note"),
        )
        for figure in figures
    ]
    header = tag(
        "header",
        tag("p", eyebrow, class_="eyebrow"),
        tag("h1", title),
        tag("p", lead, class_="lead"),
        tag("dl", *tiles, class_="figures"),
        tag("nav", *links),
    )
    head = tag(
        "head",
        void("meta", charset="utf-8"),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(files("alignfuse.report").joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", header, *map(_section, sections)))
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def write(path: Path, document: str) -> None:
    """The document as a file."""
    path.write_text(document, encoding="utf-8")


def _section(section: Section) -> Markup:
    lead = tag("p", section.lead, class_="lead") if section.lead else Markup()
    return tag("section", tag("h2", section.title), lead, section.body, id=_anchor(section))


def _anchor(section: Section) -> str:
    return section.title.lower().replace(" ", "-")
