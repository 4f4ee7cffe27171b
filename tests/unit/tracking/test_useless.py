"""Counts of useless outputs, in words."""

from __future__ import annotations

from tuneyard.metrics import FIGURES
from tuneyard.tracking.useless import qualified, useless_of, words_of


def test_counts_are_said_with_their_total() -> None:
    assert words_of({"rows": 3000, "empty": 2400, "looping": 0, "cut_off": 60}) == "2,400 empty, 60 cut off of 3,000"
    assert words_of({"rows": 300, "empty": 0, "looping": 0, "cut_off": 0}) == "none of 300 empty, looping or cut off"


def test_a_task_that_has_not_counted_says_nothing() -> None:
    for task in ({}, {"rows": 300}, {"rows": 0, "empty": 0}, {"rows": None, "empty": 1}):
        assert words_of(task) == ""
        assert useless_of(task) == []


def test_figures_of_outputs_are_qualified_and_those_of_references_are_not() -> None:
    assert qualified("rouge_l")
    assert not qualified("perplexity")
    assert qualified("a_figure_of_another_version")
    assert {"bleu", "exact_match"} <= {name for name in FIGURES if qualified(name)}
