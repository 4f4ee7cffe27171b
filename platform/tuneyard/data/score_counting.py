"""The number and the lengths of the rows of a score task, before it runs.

Rows have numbers (`score_rows`), so that their count is exact. Lengths are those of an even selection of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, ScoreTask
from tuneyard.data.counting import USUAL_CHARACTERS, characters_per_token
from tuneyard.data.score_rows import ScoreRow, ScoreRows
from tuneyard.planning.engines import ScoreCount

_READ_ROWS = 2000
_RANGE = 50
"""Rows that are read together."""


def count_score_rows(task: ScoreTask, *, tokenizer: Path | None = None) -> ScoreCount:
    """Count the rows of a task whose `data.source` is resolved. `tokenizer`: a tokenizer.json, for characters per token.

    Raises BadInput: no file, no row, no column with the name of the prompt, or no row that can be read.
    """
    rows = ScoreRows.open(task.rows_to_score)
    total = rows.count()
    if total == 0:
        raise BadInput(f"{rows.uri}: there is no row to score", "check data.source, and raise data.limit")
    read = [row for start in _starts(total) for row in rows.read(start, start + _RANGE)]
    good = [row for row in read if row["error"] is None]
    if not good:
        raise BadInput(f"{rows.uri}: no row can be scored: {read[0]['error']}", "`tuneyard data inspect` shows the rows")
    prompts = [_asked(row) for row in good]
    references = [row["references"][0] for row in good if row["references"]]
    ratio = characters_per_token([*prompts[:: 1 + len(prompts) // 256]], tokenizer) if tokenizer is not None else None
    characters = (ratio or USUAL_CHARACTERS).likely
    return ScoreCount(
        rows=total,
        prompt_tokens=tuple(len(text) / characters for text in prompts),
        reference_tokens=_mean([len(text) / characters for text in references]),
        assumed_tokens=ratio is None,
    )


def _starts(total: int) -> Iterator[int]:
    """The first rows of ranges that are spread evenly over all rows."""
    ranges = min(_READ_ROWS // _RANGE, -(-total // _RANGE))
    yield from (int(total * i / ranges) for i in range(ranges))


def _asked(row: ScoreRow) -> str:
    """All text of a prompt."""
    prompt = row["prompt"]
    turns = [prompt] if isinstance(prompt, str) else [_text(message.get("content")) for message in prompt]
    return "\n".join([*([row["system"]] if row["system"] else []), *turns, *([row["answer"]] if row["answer"] else [])])


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) if isinstance(part, dict) else str(part) for part in content)
    return "" if content is None else str(content)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
