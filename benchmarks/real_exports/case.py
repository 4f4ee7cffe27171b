"""One file of a person or an exporter, with the reading that is right for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

N = 6
"""Rows of each file."""


@dataclass(frozen=True)
class Case:
    """A file, and its right reading.

    `reads`: the first sample, with the text that carries loss in «». None: the file is refused, or its rows are. `says`: words that must
    stand in what is printed. `how`: options of the inspection. `prompt`: the column of a score task; None: the file trains.
    """

    kind: str
    name: str
    content: bytes
    reads: str | None
    says: tuple[str, ...] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    prompt: str | None = None


def lines(row: Callable[[int], Any]) -> bytes:
    """JSON lines of N rows."""
    return "".join(json.dumps(row(i), ensure_ascii=False) + "\n" for i in range(N)).encode()


def document(value: Any, **how: Any) -> bytes:
    """One JSON document."""
    return json.dumps(value, ensure_ascii=False, **how).encode()


def chat(*turns: str) -> str:
    """The shown text of a chat: `user: hello`; turns of the assistant carry loss."""
    return "".join(f"«{turn}\n»" if turn.startswith("assistant:") else f"{turn}\n" for turn in turns)


def answer(asked: Sequence[str], answered: str) -> str:
    """The shown text of a chat in which the last turn alone carries loss."""
    return "".join(f"{turn}\n" for turn in asked) + f"«assistant: {answered}\n»"


def completion(prompt: str, answered: str) -> str:
    """The shown text of a pair of texts."""
    return f"{prompt}«{answered}»"


def pair(prompt: str, chosen: str, rejected: str) -> str:
    """The shown text of a preference."""
    return f"prompt: {prompt}\n«chosen: {chosen}\n»rejected: {rejected}"
