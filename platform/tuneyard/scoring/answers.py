"""The answer in the output of a row, as `score.answer` says, and the row as metrics compare it."""

from __future__ import annotations

from dataclasses import replace

from tuneyard.api import AnswerAt, BadInput, ScoreTask
from tuneyard.api.answers import ways_of
from tuneyard.data import ScoreRow
from tuneyard.metrics import PLAIN, Ways
from tuneyard.metrics.answers import Cut, TooSlow, by_form, by_path, by_pattern
from tuneyard.scoring.rows import ScoredRow

_MOST_SLOW = 3
"""Rows of a part over which a pattern takes too long, after which the task fails."""


class Answers:
    """Cuts the answers of a part's rows."""

    def __init__(self, task: ScoreTask) -> None:
        self._cut = cut_of(task)
        self._slow = 0
        # A part without an opened data set, as in tests, has 13a for `auto`.
        self._ways: Ways = ways_of(task, "13a" if task.bleu.tokenize == "auto" else task.bleu.tokenize) if task.judge is None else PLAIN

    def take(self, row: ScoredRow) -> None:
        """Set what metrics compare: the answers in the output, the samples and the references of the row.

        Raises ValueError where a pattern takes too long for a text of the row, and BadInput at the third such row.
        """
        row.ways = self._ways
        if self._cut is None or row.output is None:
            return
        try:
            row.extracted = self._cut(row.output)
            row.expected = tuple(self._cut(reference) or reference for reference in row.references)
            row.drawn = tuple(self._cut(sample or "") for sample in row.samples)
        except TooSlow as error:
            self._note(error)
        row.answered = row.extracted is not None

    def judged(self, row: ScoreRow) -> tuple[ScoreRow, bool, bool]:
        """A row as a judge sees it, with the answers cut out of the recorded ones; whether each of the two was there. Raises as `take`."""
        if self._cut is None:
            return row, True, True
        seen = row.copy()
        try:
            answer, other = self._cut(row["answer"]), self._cut(row["against"]) if "against" in row else ""
            seen["references"] = tuple(self._cut(reference) or reference for reference in row["references"])
        except TooSlow as error:
            self._note(error)
        seen["answer"] = answer or ""
        if "against" in row:
            seen["against"] = other or ""
        return seen, answer is not None, other is not None

    def _note(self, error: TooSlow) -> None:
        self._slow += 1
        if self._slow >= _MOST_SLOW:
            raise BadInput(
                f"score.answer: {error}; {_MOST_SLOW} rows of one part took so long",
                "write the pattern without repetitions inside of repetitions, such as (a+)+; committed parts are kept",
            ) from error
        raise error


def compared(row: ScoredRow) -> ScoredRow:
    """The row as metrics see it: with the answers in place of the texts. It shares its values and sums with the row."""
    if row.extracted is None and row.answered:
        return row
    return replace(row, output=row.extracted or "", references=row.expected, samples=row.drawn)


def cut_of(task: ScoreTask) -> Cut | None:
    """The function that cuts an answer out of a text. None: the whole output is the answer."""
    asked = task.answer
    if asked is None:
        return None
    if not isinstance(asked, AnswerAt):
        return by_form(asked)
    if asked.json_path is not None:
        return by_path(asked.json_path)
    return by_pattern(asked.first or asked.last or "", last=asked.last is not None)
