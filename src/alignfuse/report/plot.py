"""The frame of a chart: its plane, its scales, and its axes with grid and names. Lengths in units of the SVG."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from alignfuse.report import axis
from alignfuse.report.axis import Number
from alignfuse.report.markup import Markup, tag

WIDTH, HEIGHT = 480, 270
LEFT, RIGHT, TOP, BOTTOM = 46, WIDTH - 14, 16, HEIGHT - 40  # edges of the plane

Point = tuple[Number, Number]


@dataclass(frozen=True)
class Plane:
    """What the two axes span, and their ticks."""

    across: Sequence[float]
    up: Sequence[float]
    end: Number  # right edge

    @classmethod
    def over(cls, points: Sequence[Point], levels: Sequence[Number]) -> "Plane":
        """The plane that holds all points and levels; it begins at 0 both ways unless something lies below."""
        end = max(at for at, _ in points)
        across = [tick for tick in axis.ticks([0, *(at for at, _ in points)]) if tick <= end]
        return cls(across, axis.ticks([0.0, *levels, *(value for _, value in points)]), end)

    def x(self, at: Number) -> float:
        """Place from the left."""
        span = (self.end - self.across[0]) or 1.0
        return LEFT + (at - self.across[0]) / span * (RIGHT - LEFT)

    def y(self, value: Number) -> float:
        """Place from the top."""
        return BOTTOM - (value - self.up[0]) / (self.up[-1] - self.up[0]) * (BOTTOM - TOP)

    def axes(self, x: str, y: str) -> Iterator[Markup]:
        """Grid, numbers and names."""
        for tick in self.up:
            at = self.y(tick)
            yield tag("line", x1=LEFT, x2=RIGHT, y1=at, y2=at, class_="grid" if tick else "base")
            yield tag("text", axis.write(tick), x=LEFT - 8, y=at + 4, class_="tick end")
        for tick in self.across:
            yield tag("text", axis.write(tick), x=self.x(tick), y=BOTTOM + 18, class_="tick middle")
        middle = (TOP + BOTTOM) / 2
        yield tag("text", x, x=(LEFT + RIGHT) / 2, y=HEIGHT - 4, class_="name middle")
        yield tag("text", y, x=10, y=middle, class_="name middle", transform=f"rotate(-90 10 {middle:g})")
