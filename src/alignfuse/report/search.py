"""Queries with the images that were found for them, in one order or several side by side."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from alignfuse.data.records import ImageSource
from alignfuse.report.markup import Content, Markup, join, tag
from alignfuse.report.page import Section
from alignfuse.report.picture import Mark, picture


class Found(NamedTuple):
    """One image that was found. `mark`: it is the query's own, it fits as well, or nothing is said of it."""

    image: ImageSource
    score: str
    mark: Mark = ""


class Query(NamedTuple):
    """A text and what was found for it: name of the order -> images, best first."""

    text: str
    note: str
    orders: Mapping[str, Sequence[Found]]
    own: ImageSource | None = None  # the image that the text was written for


LEGEND = {"own": "the image that the text was written for", "fits": "another image that the text is true of"}


def search_section(queries: Sequence[Query], *, lead: Content = "") -> Section:
    """A card for each query, with one row of pictures for each order."""
    keys = [tag("span", tag("i", class_=f"swatch frame {mark}"), text) for mark, text in LEGEND.items()]
    cards = [_card(query) for query in queries]
    return Section("Search", lead, join(tag("p", *keys, class_="legend"), tag("div", *cards, class_="queries")))


def _card(query: Query) -> Markup:
    text = tag("div", tag("h3", tag("q", query.text)), tag("p", query.note, class_="note"))
    own = Markup() if query.own is None else picture(query.own, "the image of the text", mark="own")
    rows = [
        tag("div", tag("span", name), tag("div", *[_picture(found) for found in order], class_="strip"), class_="order")
        for name, order in query.orders.items()
    ]
    return tag("article", tag("div", own, text, class_="asked"), *rows, class_="card")


def _picture(found: Found) -> Markup:
    return picture(found.image, found.score, mark=found.mark, note=found.score)
