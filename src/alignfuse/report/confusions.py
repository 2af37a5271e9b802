"""Images for which a model prefers a wrong caption to their own."""

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from alignfuse.data.records import ImageSource
from alignfuse.report.bars import bar
from alignfuse.report.markup import Content, Markup, join, tag
from alignfuse.report.page import Section
from alignfuse.report.picture import picture


class Confusion(NamedTuple):
    """Probabilities of a match, 0 to 1, from the fusion encoder."""

    image: ImageSource
    caption: str
    probability: float
    preferred: str
    preferred_probability: float


def confusion_section(confusions: Sequence[Confusion], *, lead: Content = "") -> Section:
    """A card for each, in which the words that differ stand out."""
    if not confusions:
        return Section("Most confused", "No image has a wrong caption before its own.", Markup())
    cards = tag("div", *map(_card, confusions), class_="cards")
    return Section("Most confused", lead, cards)


def differing(text: str, other: str) -> Markup:
    """The text with the words marked that the other does not have in their place."""
    words = text.split()
    pieces: list[Content] = []
    for kind, start, end, _, _ in SequenceMatcher(None, words, other.split(), autojunk=False).get_opcodes():
        if start < end:
            some = " ".join(words[start:end])
            pieces += [some if kind == "equal" else tag("mark", some), " "]
    return join(*pieces[:-1])


def _card(confusion: Confusion) -> Markup:
    own, preferred = confusion.caption, confusion.preferred
    texts = tag(
        "div",
        tag("p", "the model prefers", class_="label"),
        tag("p", differing(preferred, own)),
        _probability(confusion.preferred_probability, "bad"),
        tag("p", "its own caption", class_="label"),
        tag("p", differing(own, preferred)),
        _probability(confusion.probability, "good"),
    )
    return tag("article", picture(confusion.image, own), texts, class_="card beside")


def _probability(value: float, colour: str) -> Markup:
    return bar(100 * value, colour, f"{value:.3f}")
