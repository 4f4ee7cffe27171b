from __future__ import annotations

import itertools
import math
import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.tracking.charts import HEIGHT, WIDTH, Bar, Line, Part, bar_chart, line_chart, nice_ticks, share_bar, tick_label
from tuneyard.tracking.formats import number
from tuneyard.tracking.heat_map import heat_map

VALUES = st.floats(-1e9, 1e9).map(lambda value: round(value, 6))


@given(VALUES, VALUES, st.integers(2, 10))
def test_ticks_span_the_values_in_round_even_steps(one: float, other: float, most: int) -> None:
    low, high = min(one, other), max(one, other)

    ticks = nice_ticks(low, high, most)

    steps = [b - a for a, b in itertools.pairwise(ticks)]
    slack = 1e-6 * (abs(low) + abs(high) + steps[0])
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert 2 <= len(ticks) <= most + 2
    assert max(steps) - min(steps) <= slack


@pytest.mark.parametrize(
    ("value", "step", "label"),
    [(0, 5000, "0"), (5000, 5000, "5k"), (2500, 500, "2.5k"), (1.5, 0.5, "1.5"), (0.25, 0.05, "0.25"), (2e6, 1e6, "2M"), (100, 20, "100")],
)
def test_tick_labels_have_as_many_decimals_as_they_need(value: float, step: float, label: str) -> None:
    assert tick_label(value, step) == label


@given(st.lists(st.tuples(st.integers(1, 10**6), st.floats(-1e6, 1e6) | st.sampled_from([math.nan, math.inf])), max_size=50))
def test_lines_stay_inside_their_drawing(points: list[tuple[int, float]]) -> None:
    drawing = line_chart([Line("loss", sorted(points, key=lambda point: point[0]))], title="Loss", from_zero=False)

    if not any(math.isfinite(y) for _, y in points):
        assert drawing == ""
        return
    for x, y in re.findall(r"([\d.-]+),([\d.-]+)", "".join(re.findall(r'points="([^"]*)"', drawing)).replace(" ", " ")):
        assert 0 <= float(x) <= WIDTH
        assert 0 <= float(y) <= HEIGHT
    assert "nan" not in drawing
    assert "inf" not in drawing


def test_a_long_run_is_a_small_drawing() -> None:
    drawing = line_chart([Line("loss", [(step, 1 / step) for step in range(1, 100_000)])], title="Loss", from_zero=True)

    assert len(drawing) < 60_000


def test_bars_show_planned_and_measured_on_one_scale() -> None:
    bars = [Bar("planned", [Part("weights", 6.0, "p1"), Part("other", 2.0, "p5")]), Bar("rank 0", [Part("peak", 4.0, "c1")])]

    drawing = ElementTree.fromstring(bar_chart(bars, title="Memory", value_label=number))

    widths = [float(part.attrib["width"]) for part in drawing.iter("rect")]
    assert widths[2] == pytest.approx((widths[0] + widths[1]) / 2, abs=0.2)
    assert [part.text for part in drawing.iter("title")] == ["planned · weights 6.00", "planned · other 2.00", "rank 0 · peak 4.00"]


def test_nothing_measured_draws_nothing() -> None:
    assert bar_chart([], title="Memory", value_label=number) == ""
    assert share_bar([Part("data", 0.0, "p1")], title="Time", value_label=number) == ""
    assert line_chart([Line("loss", [])], title="Loss", from_zero=True) == ""


def test_a_large_table_shares_cells_and_keeps_its_largest_values() -> None:
    rows = [[1.0] * 256 for _ in range(100)]
    rows[99][255] = 7.0

    drawing = ElementTree.fromstring(heat_map(rows, title="Load", row_name="layer", column_name="expert", value_label=number, darkest=2.0))

    names = [cell.text for cell in drawing.iter("title")]
    assert len(names) <= 64 * 64
    assert names[0] == "layer 1 to 2 · expert 1 to 4: 1.00"
    assert names[-1] == "layer 99 to 100 · expert 253 to 256: 7.00"
    assert heat_map([], title="Load", row_name="layer", column_name="expert", value_label=number, darkest=2.0) == ""


def test_names_are_escaped() -> None:
    drawing = line_chart([Line("<script>", [(1, 1.0), (2, 2.0)])], title='"><script>', from_zero=True)

    assert "<script>" not in drawing
    ElementTree.fromstring(drawing)
