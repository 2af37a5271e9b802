"""Axes: round numbers that cover a range, and how they are written."""

import math
from collections.abc import Iterable

Number = int | float


def ticks(values: Iterable[Number], *, count: int = 5) -> list[float]:
    """About `count` round numbers, evenly apart, the first at or below all values and the last at or above."""
    known = list(values)
    low, high = min(known), max(known)
    step = _round_up((high - low or abs(high) or 1.0) / count)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(number * step, 12) for number in range(first, max(last, first + 1) + 1)]


def write(value: Number) -> str:
    """1,500 or 0.25 or 3."""
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:g}"


def _round_up(step: float) -> float:
    """The smallest of 1, 2, 2.5, 5, 10 times a power of ten that is not below."""
    scale = 10.0 ** math.floor(math.log10(step))
    return scale * next(part for part in (1, 2, 2.5, 5, 10) if part * scale >= step * (1 - 1e-9))
