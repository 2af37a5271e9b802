"""Axes, lines and bars against values worked out by hand."""

import pytest

from alignfuse.report import axis
from alignfuse.report.bars import bar_chart
from alignfuse.report.lines import Reference, Series, line_chart, smoothed
from alignfuse.report.plot import BOTTOM, LEFT, RIGHT, TOP
from tests.report.well_formed import Reader


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 5.7], [0, 2, 4, 6]),
        ([0, 0.64], [0, 0.2, 0.4, 0.6, 0.8]),
        ([0, 1500], [0, 500, 1000, 1500]),
        ([97.2, 98.9], [97, 97.5, 98, 98.5, 99]),
        ([-0.3, 0.4], [-0.4, -0.2, 0, 0.2, 0.4]),
        ([0, 0], [0, 0.2]),
        ([3, 3], [3, 4]),
    ],
)
def test_ticks_are_round_and_cover_the_values(values: list[float], ticks: list[float]) -> None:
    assert axis.ticks(values) == ticks


def test_numbers_are_written_short() -> None:
    assert [axis.write(value) for value in (1500, 0.25, 3.0, -2)] == ["1,500", "0.25", "3", "-2"]


def test_smoothing_is_a_mean_that_keeps_both_ends() -> None:
    points = [(0, 0.0), (1, 3.0), (2, 6.0), (3, 0.0), (4, 6.0)]
    assert smoothed(points, 1) == [(0, 0.0), (1, 3.0), (2, 3.0), (3, 4.0), (4, 6.0)]
    assert smoothed(points, 9)[2] == (2, 3.0)
    assert smoothed(points, 0) == points


def test_a_line_runs_through_its_points() -> None:
    chart = Reader(line_chart("a & b", [Series("loss", [(0, 0.0), (50, 1.0), (100, 0.5)])], x="step", y="loss"))
    (line,) = chart.all("polyline")
    half = (TOP + BOTTOM) / 2
    assert line["points"] == (f"{LEFT:.1f},{BOTTOM:.1f} {(LEFT + RIGHT) / 2:.1f},{TOP:.1f} {RIGHT:.1f},{half:.1f}")
    assert "a & b" in chart.text
    assert {"step", "loss", "0", "0.2", "1", "100"} <= set(chart.texts)


def test_values_under_the_pointer_name_the_series() -> None:
    series = [Series("red", [(1, 0.25), (2, 0.5)]), Series("blue", [(2, 0.125)], 2)]
    chart = Reader(line_chart("two", series, x="step", y="loss"))
    assert {"1: red 0.25", "2: red 0.5, blue 0.125"} <= set(chart.texts)
    bands = [(float(band["x"]), float(band["width"])) for band in chart.all("rect")]
    assert bands[0][0] == LEFT
    assert bands[0][0] + bands[0][1] == pytest.approx(bands[1][0], abs=0.02)
    assert sum(bands[1]) == pytest.approx(RIGHT, abs=0.02)


def test_a_long_line_has_a_bounded_number_of_tips_and_no_dots() -> None:
    chart = Reader(line_chart("long", [Series("loss", [(step, 1 / (1 + step)) for step in range(1000)])], x="x", y="y"))
    assert 60 < len(chart.all("rect")) <= 120
    assert len(chart.all("circle")) == len(chart.all("rect"))


def test_a_reference_is_within_the_axis_and_named() -> None:
    series = [Series("loss", [(0, 0.2), (1, 0.1)])]
    chart = Reader(line_chart("itm", series, x="step", y="loss", reference=Reference("guessing", 0.64)))
    (line,) = chart.all("line", "reference")
    assert TOP <= float(line["y1"]) < BOTTOM
    assert "guessing" in chart.texts


def test_a_single_point_is_drawn() -> None:
    chart = Reader(line_chart("short", [Series("loss", [(3, 0.7)])], x="step", y="loss"))
    assert len(chart.all("circle")) == 2  # on the line and under the pointer


def test_bars_are_as_long_as_their_share() -> None:
    rows = {"all": {"seen": 90.0, "blind": 40.4}, "size": {"seen": 100.0, "blind": 0.0}}
    chart = Reader(bar_chart("words", rows, chance=50))
    widths = [found["style"] for found in chart.all("i") if "width" in found.get("style", "")]
    assert widths == ["width:90.0%", "width:40.4%", "width:100.0%", "width:0.0%"]
    assert {"90", "40", "100", "0", "seen", "blind", "chance, 50%"} <= set(chart.texts)
    assert [found["style"] for found in chart.all("i", "line")] == ["left:50%"] * 2


def test_the_axis_of_steps_begins_at_nothing() -> None:
    chart = Reader(line_chart("late", [Series("recall", [(800, 40.0), (1600, 60.0)])], x="step", y="percent"))
    (line,) = chart.all("polyline")
    assert line["points"].startswith(f"{(LEFT + RIGHT) / 2:.1f},")
