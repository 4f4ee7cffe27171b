"""Sample rows of a score task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST_SAMPLES = 8
MOST_CHARACTERS = 4_000
_NONE = "none"


@dataclass(frozen=True)
class Sample:
    """A row that was scored: its answer, or why there is none."""

    title: str
    prompt: str
    answer: str
    reference: str
    failed: bool
    beside: tuple[tuple[str, str], ...] = ()
    """Headings and texts: what a judge was shown, and the model's thoughts."""


def samples_of(task: Mapping[str, Any]) -> list[Sample]:
    return [_sample(row) for row in (task.get("samples") or [])[:MOST_SAMPLES]]


def _sample(row: Mapping[str, Any]) -> Sample:
    prompt, error = row.get("prompt"), row.get("error")
    if isinstance(prompt, list):
        prompt = "\n".join(f"{turn.get('role', '')}: {turn.get('content', '')}" if isinstance(turn, dict) else str(turn) for turn in prompt)
    place = f"row {row['row']}" if "row" in row else ""
    title = f"a typical answer, {place}" if row.get("typical") else place
    return Sample(title, _text(prompt), _text(error or row.get("output")), _text(row.get("reference")), bool(error), _beside(row))


def _beside(row: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    headings = {
        "extracted": "the answer in it",
        "answer": "the answer that is judged",
        "against": "the other answer",
        "reasoning": "reasoning",
    }
    return tuple((heading, _text(row[name]) or _NONE) for name, heading in headings.items() if row.get(name) is not None)


def _text(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}… ({len(text):,} characters)"
