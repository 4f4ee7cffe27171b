"""The number and the lengths of the rows of a score task, before it runs.

Rows have numbers (`score_rows`), so that their count is exact. Lengths are those of an even selection of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
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

    Rows that cannot be scored (`ScoreRow.error`) are counted apart, and have no length. Raises BadInput: no file, no row, or no column with
    the name of the prompt.
    """
    rows = ScoreRows.open(task.rows_to_score)
    total = rows.count()
    if total == 0:
        raise BadInput(f"{rows.uri}: there is no row to score", "check data.source, and raise data.limit")
    read = [row for start, stop in _ranges(total) for row in rows.read(start, stop)]
    good = [row for row in read if row["error"] is None]
    prompts = [_asked(row) for row in good]
    references = [row["references"][0] for row in good if row["references"]]
    sample = prompts[:: 1 + len(prompts) // 256]
    ratio = characters_per_token(sample, tokenizer) if tokenizer is not None and sample else None
    characters = (ratio or USUAL_CHARACTERS).likely
    return ScoreCount(
        rows=total,
        prompt_tokens=tuple(len(text) / characters for text in prompts),
        reference_tokens=_mean([len(text) / characters for text in references]),
        assumed_tokens=ratio is None,
        unusable=round(total * (1 - len(good) / len(read))),
        unusable_why=next((row["error"] for row in read if row["error"] is not None), ""),
    )


def _ranges(total: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that are spread evenly over all rows: first row, and the row after the last. Few rows are all read, each once."""
    ranges = min(_READ_ROWS // _RANGE, -(-total // _RANGE))
    starts = [int(total * i / ranges) for i in range(ranges)]
    yield from ((start, min(start + _RANGE, following)) for start, following in pairwise([*starts, total]))


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
