"""Drawings: well-formed, without styles of their own, and right at their edges."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from tests.servers.consoles import HOSTILE

from tuneyard.console.drawings.days import day_columns
from tuneyard.console.drawings.task_graph import Node, task_graph
from tuneyard.console.drawings.time_line import Span, time_line

NOW = datetime(2026, 11, 26, 8, 0, tzinfo=UTC)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), min_size=1, max_size=30)


@given(edges=st.dictionaries(NAMES, st.lists(NAMES, max_size=4), max_size=12))
def test_a_graph_is_drawn_of_any_tasks_also_in_a_circle(edges: dict[str, list[str]]) -> None:
    drawn = str(task_graph([Node(name, "train", "running", upstream) for name, upstream in edges.items()]))
    assert bool(drawn) == (len(edges) > 1)
    assert all(each.get("style") is None for each in (ET.fromstring(drawn).iter() if drawn else ()))


def test_a_task_stands_right_of_all_that_it_waits_for() -> None:
    nodes = [
        Node("judge", "score", "pending", ["train"]),
        Node("train", "train", "running", ["data"]),
        Node("data", "process", "succeeded", []),
    ]
    boxes = [each for each in ET.fromstring(str(task_graph(nodes))).iter() if each.get("class") == "box"]
    left = [float(each.get("x", "")) for each in boxes]
    assert left[0] > left[1] > left[2]


def test_a_hostile_name_is_text() -> None:
    drawn = str(task_graph([Node(HOSTILE, "train", "running", []), Node("b", "score", "pending", [HOSTILE])]))
    assert "<img" not in drawn
    assert "\u202e" not in drawn


@given(st.lists(st.tuples(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6) | st.none()), max_size=8))
def test_a_time_line_stays_in_its_frame_whatever_the_clocks_say(times: list[tuple[int, int | None]]) -> None:
    def at(seconds: int) -> datetime:
        return NOW + timedelta(seconds=seconds)

    rows = time_line([Span("a", "", "running", at(start), None if end is None else at(end)) for start, end in times], NOW)
    for row in rows:
        assert row.seconds >= 0
        for rect in ET.fromstring(str(row.bar)):
            assert 0 <= float(rect.get("x", "")) <= 1000
            assert float(rect.get("width", "")) > 0


@given(
    st.lists(st.dictionaries(st.sampled_from(["succeeded", "failed", "running", "lost"]), st.integers(0, 10**6)), min_size=1, max_size=14)
)
def test_columns_of_days_are_as_high_as_their_runs(days: list[dict[str, int]]) -> None:
    drawn = str(day_columns([(NOW - timedelta(days=len(days) - n), counts) for n, counts in enumerate(days)]))
    assert bool(drawn) == any(sum(counts.values()) for counts in days)
    for rect in ET.fromstring(drawn).iter("rect") if drawn else ():
        assert float(rect.get("y", "")) >= -8
