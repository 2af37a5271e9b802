"""A reader that accepts only documents in which every element is closed where it belongs."""

from html.parser import HTMLParser

VOID = {"meta", "img"}


class Reader(HTMLParser):
    """Collects text, and elements by name with their attributes."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(document)
        self.close()
        assert self.open == [], f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        """All text, pieces set apart by one space."""
        return " ".join(" ".join(self.texts).split())

    def all(self, name: str, class_: str = "") -> list[dict[str, str]]:
        """Attributes of the elements of this name that have a class."""
        return [
            found for tag, found in self.elements if tag == name and class_ in ["", *found.get("class", "").split()]
        ]
