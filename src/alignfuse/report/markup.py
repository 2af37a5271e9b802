"""HTML and SVG as text in which everything but markup itself is escaped."""

from html import escape


class Markup(str):
    """Text that is HTML already."""


Content = str | Markup


def tag(name: str, /, *content: Content, **attributes: str | int | float) -> Markup:
    """One element. `class_` stands for class and `stroke_width` for stroke-width; numbers keep two decimals."""
    written = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(_plain(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{join(*content)}</{name}>")


def join(*content: Content) -> Markup:
    """Pieces one after the other."""
    return Markup("".join(piece if isinstance(piece, Markup) else escape(piece) for piece in content))


def void(name: str, /, **attributes: str | int | float) -> Markup:
    """An element that holds nothing and is not closed, such as img."""
    return Markup(tag(name, **attributes).removesuffix(f"</{name}>"))


def _plain(value: str | int | float) -> str:
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
