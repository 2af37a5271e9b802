"""What a model understands of pictures: shares by kind of word, and guessed words one by one."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from alignfuse.data.records import ImageSource
from alignfuse.report.bars import Rows, bar, bar_chart
from alignfuse.report.markup import Content, Markup, join, tag
from alignfuse.report.page import Section
from alignfuse.report.picture import picture


class GuessedWord(NamedTuple):
    """A caption with one word masked, and what was guessed: what was read -> words with probabilities, best first."""

    image: ImageSource
    words: Sequence[str]
    position: int
    answers: frozenset[str]
    guesses: Mapping[str, Sequence[tuple[str, float]]]


def understanding_section(masked: Rows, pairs: Rows, *, lead: Content = "") -> Section:
    """Shares of masked words and of one-word pairs that were right, in percent, by kind."""
    charts = join(
        bar_chart("Masked words that only the picture decides", masked),
        bar_chart("Captions with one word wrong: called no match, and the true ones a match", pairs, chance=50),
    )
    return Section("Understanding", lead, tag("div", charts, class_="charts"))


def guesses_section(guessed: Sequence[GuessedWord], *, lead: Content = "") -> Section:
    """A card for each masked word."""
    return Section("Masked words", lead, tag("div", *map(_card, guessed), class_="cards"))


def _card(guessed: GuessedWord) -> Markup:
    before, after = guessed.words[: guessed.position], guessed.words[guessed.position + 1 :]
    sentence = tag("p", " ".join(before), " ", tag("span", "?", class_="blank"), " ", " ".join(after), class_="said")
    columns = [
        tag("div", tag("p", name, class_="label"), *[_word(word, chance, guessed.answers) for word, chance in words])
        for name, words in guessed.guesses.items()
    ]
    texts = tag("div", sentence, tag("div", *columns, class_="guesses"))
    alt = " ".join([*before, "...", *after])
    return tag("article", picture(guessed.image, alt), texts, class_="card beside")


def _word(word: str, chance: float, answers: frozenset[str]) -> Markup:
    name = tag("span", word, class_="good" if word in answers else "")
    return tag(
        "div", name, bar(100 * chance, "good" if word in answers else "plain", f"{100 * chance:.0f}"), class_="word"
    )
