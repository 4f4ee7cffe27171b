"""Rows of a score task that would end as errors, as `tuneyard plan` finds them before the task runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuneyard.api import ScoreTask
from tuneyard.planning.engines import ScoreCount


@dataclass(frozen=True)
class RowErrors:
    """The rows of a task by what becomes of them in engines of `longest` tokens. `count` None: their number is unknown."""

    count: ScoreCount | None
    longest: int

    @property
    def scored(self) -> int | None:
        """Rows that are scored; None: the number is unknown."""
        return self.count.within(self.longest).rows if self.count is not None else None

    def fields(self) -> dict[str, Any]:
        """Numbers of rows. Those of errors are None where no row was read."""
        count = self.count
        read = count is not None and bool(count.prompt_tokens or count.unusable)
        return {
            "rows": count.rows if count is not None else None,
            "scored_rows": self.scored,
            "unusable": count.unusable if count is not None and read else None,
            "too_long": count.too_long(self.longest) if count is not None and read else None,
            "error_notes": [f"{found}: {advice}" for found, advice in self._kinds()],
        }

    def failure(self, task: ScoreTask) -> str:
        """Why the task would fail, and what to do; empty: it would not. It fails where the share of errors is above `maxErrorFraction`.
        Without a row to score there is nothing to plan either.
        """
        if self.count is None or self.scored is None:
            return ""
        rows, errors, tolerated = self.count.rows, self.count.rows - self.scored, task.max_error_fraction
        if self.scored and errors <= tolerated * rows:
            return ""
        above = f", more than maxErrorFraction {tolerated:g} tolerates" if errors > tolerated * rows else ""
        kinds = self._kinds()
        advice = kinds[-1 if self.count.too_long(self.longest) > self.count.unusable else 0][1]
        what = f"{errors:,} of {_rows(rows)} would end as errors{above}"
        return f"the task would fail: {what}: {', and '.join(found for found, _ in kinds)}; {advice}"

    def _kinds(self) -> list[tuple[str, str]]:
        """Each kind of error that was found, with its number of rows, and what to do about it."""
        if self.count is None:
            return []
        count, found = self.count, []
        if count.unusable:
            exact = len(count.prompt_tokens) + count.unusable == count.rows
            number = f"{'' if exact else 'about '}{count.unusable:,} of {_rows(count.rows)}"
            found.append((f"{number} cannot be scored ({count.unusable_why})", "repair them; `tuneyard data inspect` shows the rows"))
        if too_long := count.too_long(self.longest):
            has = "has a prompt" if too_long == 1 else "have prompts"
            number = f"about {too_long:,} of {_rows(count.rows)}"
            found.append(
                (
                    f"{number} {has} beyond the {self.longest:,} tokens of an engine",
                    "raise engine.maxLength as far as the model goes, or cut the prompts",
                )
            )
        return found


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"
