"""The questions to a judge about the rows of a part, one after another: about one answer, or about two answers in both orders.

A question without a score or verdict in its answer is asked once more, in a stricter form. The second such answer makes the row an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tuneyard.api import Judge
from tuneyard.data import ScoreRow
from tuneyard.metrics.win_rate import Preference
from tuneyard.scoring.exchange import Generate
from tuneyard.scoring.judge import judge_prompt, no_score
from tuneyard.scoring.judge_words import score_in
from tuneyard.scoring.pairwise import pair_prompt, verdict_in
from tuneyard.scoring.rows import ScoredRow

Request = tuple[Generate, int]
"""A request, with the tokens of its prompt."""
NO_VERDICT = "the judge named neither A nor B nor a tie, when asked twice"
CUT_OFF = "; its last answer was cut off: raise generation.maxTokens"
SAME_ANSWERS = "[the two answers are the same text: a tie, which the judge was not asked about]"
NO_ANSWER = "[no answer could be cut out of the text: {said}, which the judge was not asked about]"
_SHOWN = ("[the task's answer first, as A]", "[the task's answer second, as B]")


@dataclass
class _Row:
    """`waiting`: the questions to ask, each with its stricter form. `retry`: the stricter form of the one that is asked now."""

    longer: int
    waiting: list[tuple[Request, Request]]
    retry: Request | None = None
    verdicts: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


class Judging:
    """The judge's rows of a part."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._rows: dict[int, _Row] = {}

    def ask(self, index: int, scored: ScoredRow, row: ScoreRow, request: Callable[[str], Request]) -> Generate | None:
        """The first question about a row; None where there is nothing to ask. `request`: makes a request of a prompt, may raise BadRow."""
        if self._judge.against is not None and row["answer"].strip() == row["against"].strip():
            scored.preference, scored.output = Preference(0.5, 0.5, 0, identical=True), SAME_ANSWERS
            return None
        if self._judge.against is None:
            pairs = [tuple(request(judge_prompt(self._judge, row, stricter=stricter)) for stricter in (False, True))]
            longer = 0
        else:
            pairs = [
                tuple(request(pair_prompt(self._judge, row, swapped=swapped, stricter=stricter)) for stricter in (False, True))
                for swapped in (False, True)
            ]
            longer = len(row["answer"]) - len(row["against"])
        self._rows[index] = of_row = _Row(longer, [(first, second) for first, second in pairs])
        return self._next(of_row, scored)

    def decide_unanswered(self, scored: ScoredRow, answered: bool, other_answered: bool) -> None:
        """Score a row without asking, where `score.answer` finds no answer in one of the texts: it has the lowest score, and loses against
        an answer. Two texts without an answer are a tie."""
        if self._judge.against is None:
            scored.verdict = self._judge.scale[0]
            scored.output = NO_ANSWER.format(said="the lowest score")
            return
        value = 0.5 if answered == other_answered else float(answered)
        scored.preference = Preference(value, value, 0, identical=True)
        scored.output = NO_ANSWER.format(said={1.0: "a win", 0.5: "a tie"}.get(value, "a loss"))

    def take(self, index: int, scored: ScoredRow) -> Generate | None:
        """Take the score or verdict from the answer in `scored`. Returns the next question about the row; None: there is none."""
        row, said = self._rows[index], scored.output or ""
        found = score_in(said, self._judge) if self._judge.against is None else verdict_in(said)
        if found is None and row.retry is not None:
            (again, tokens), row.retry = row.retry, None
            scored.retried = True
            scored.input_tokens += tokens
            return again
        row.said.append(said)
        if found is None:
            why = no_score(self._judge) if self._judge.against is None else NO_VERDICT
            scored.error = f"{why}{CUT_OFF if scored.finish_reason == 'length' else ''}"
        else:
            row.verdicts.append(found)
            if row.waiting:
                return self._next(row, scored)
            self._decide(row, scored)
        if self._judge.against is not None:
            scored.output = "\n\n".join(f"{shown}\n{text}" for shown, text in zip(_SHOWN, row.said, strict=False))
        del self._rows[index]
        return None

    def _next(self, row: _Row, scored: ScoredRow) -> Generate:
        (question, tokens), row.retry = row.waiting.pop(0)
        scored.input_tokens += tokens
        return question

    def _decide(self, row: _Row, scored: ScoredRow) -> None:
        if self._judge.against is None:
            (scored.verdict,) = row.verdicts
        else:
            first, second = row.verdicts
            scored.preference = Preference(first, 1 - second, row.longer)
