"""A line chart as inline SVG, with a legend, and the values under the pointer without a script."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from alignfuse.report import axis
from alignfuse.report.axis import Number
from alignfuse.report.markup import Markup, join, tag
from alignfuse.report.plot import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Plane, Point

DOTS = 30  # points up to which each is marked
TIPS = 120  # places along the axis that show their values


@dataclass(frozen=True)
class Series:
    """One line. With a window it is drawn smoothed, over its own points."""

    name: str
    points: Sequence[Point]
    colour: int = 1  # 1 to 4, of the page
    window: int = 0  # neighbours on each side that a point is averaged with


@dataclass(frozen=True)
class Reference:
    """A level to compare with."""

    name: str
    value: Number


def line_chart(title: str, series: Sequence[Series], *, x: str, y: str, reference: Reference | None = None) -> Markup:
    """A chart with a title and the names of its axes; a level to compare with is a dashed line."""
    points = [point for line in series for point in line.points]
    plane = Plane.over(points, [] if reference is None else [reference.value])
    svg = tag(
        "svg",
        *plane.axes(x, y),
        Markup() if reference is None else _reference(reference, plane),
        *(_line(line, plane) for line in series),
        tag("g", *_tips(series, plane), class_="tips"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=title,
    )
    keys = [tag("span", tag("i", class_=f"swatch s{line.colour}"), line.name) for line in series]
    legend = tag("p", *keys, class_="legend") if len(series) > 1 else Markup()
    return tag("figure", tag("figcaption", tag("strong", title), legend), svg, class_="chart")


def smoothed(points: Sequence[Point], window: int) -> list[Point]:
    """Each value as the mean of itself and `window` neighbours on each side, of as many as there are on both."""
    found = []
    for place, (at, _) in enumerate(points):
        reach = min(window, place, len(points) - 1 - place)
        near = [value for _, value in points[place - reach : place + reach + 1]]
        found.append((at, sum(near) / len(near)))
    return found


def _reference(reference: Reference, plane: Plane) -> Markup:
    at = plane.y(reference.value)
    line = tag("line", x1=LEFT, x2=RIGHT, y1=at, y2=at, class_="reference")
    return join(line, tag("text", reference.name, x=RIGHT - 4, y=at - 6, class_="tick end"))


def _line(line: Series, plane: Plane) -> Markup:
    """The points, joined; faint where the smoothed line lies over them."""
    colour = f"s{line.colour}"
    if line.window:
        smooth = smoothed(line.points, line.window)
        return join(_path(line.points, plane, f"series raw {colour}"), _path(smooth, plane, f"series {colour}"))
    few = line.points if len(line.points) <= DOTS else []
    return join(_path(line.points, plane, f"series {colour}"), *(_dot(point, plane, 3, colour) for point in few))


def _path(points: Sequence[Point], plane: Plane, name: str) -> Markup:
    places = " ".join(f"{plane.x(at):.1f},{plane.y(value):.1f}" for at, value in points)
    return tag("polyline", points=places, class_=name)


def _dot(point: Point, plane: Plane, radius: int, colour: str) -> Markup:
    return tag("circle", cx=plane.x(point[0]), cy=plane.y(point[1]), r=radius, class_=f"dot {colour}")


def _tips(series: Sequence[Series], plane: Plane) -> Iterator[Markup]:
    """Bands across the plane, each with the values in it; the style sheet shows the one under the pointer."""
    places = sorted({at for line in series for at, _ in line.points})
    places = places[:: -(-len(places) // TIPS)]
    values = [dict(line.points) for line in series]
    borders = [(plane.x(before) + plane.x(after)) / 2 for before, after in pairwise(places)]
    for at, (left, right) in zip(places, pairwise([LEFT, *borders, RIGHT]), strict=True):
        known = [(line, found[at]) for line, found in zip(series, values, strict=True) if at in found]
        shown = ", ".join(f"{value:.3g}" if len(series) == 1 else f"{line.name} {value:.3g}" for line, value in known)
        yield tag(
            "g",
            tag("rect", x=left, y=TOP, width=right - left, height=BOTTOM - TOP),
            tag("line", x1=plane.x(at), x2=plane.x(at), y1=TOP, y2=BOTTOM),
            *(_dot((at, value), plane, 4, f"s{line.colour}") for line, value in known),
            tag("text", f"{axis.write(at)}: {shown}", x=RIGHT, y=TOP - 3, class_="end"),
        )
