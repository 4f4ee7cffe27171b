"""What stands in the log of a rank."""

from __future__ import annotations

from collections.abc import Iterator

from tests.builders.reports import train_events

from tuneyard.runtime.gang.rank_lines import RankLines
from tuneyard.tracking import Preflighted, Stage


def seconds() -> Iterator[float]:
    """A clock that moves on by four seconds whenever it is looked at."""
    now = 0.0
    while True:
        yield now
        now += 4.0


def test_steps_now_and_then_the_rest_always() -> None:
    clock = seconds()
    lines = RankLines(now=lambda: next(clock))
    said = [line for event in train_events(steps=8) for line in lines.of(event)]
    assert [line.split("  ")[0] for line in said] == ["step 1/8", "step 4/8", "step 7/8", "step 8/8"]
    assert lines.of(Stage(task="t", name="loading the model")) == ["loading the model"]
    assert lines.of(Stage(task="t", name="tokenising", done=5, of=9)) == []
    assert lines.of(Preflighted(task="t", seconds=1, all_reduce_gb_per_s=12.345)) == ["all-reduce between the ranks: 12.35 GB/s"]
    assert [lines.of(event) for event in train_events(steps=40)][-1] == ["checkpoint of step 40 committed in 0.6 s (1,000.0 MB)"]
