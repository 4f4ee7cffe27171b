"""Multiple choice by likelihood: the choices of a row, the requests for their likelihoods, and the choice that they make.

As in lm-evaluation-harness, the likelihood of a choice is that of its tokens behind the prompt and a delimiter, without an end token.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from tuneyard.api import Choices
from tuneyard.api.answers import MOST_CHOICES
from tuneyard.data import ScoreRow
from tuneyard.metrics.choices import Chosen
from tuneyard.scoring.exchange import Prompts
from tuneyard.scoring.prompts import BadRow, Likelihood

Prompt = str | list[dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """The choices of a row. `texts`: as the model may choose them; `continuations`: what has a likelihood; `right`: the place of the right
    one."""

    texts: tuple[str, ...]
    continuations: tuple[str, ...]
    right: int
    tokens: tuple[Likelihood, ...]


def ask(choices: Choices, row: ScoreRow, prompts: Prompts, *, reference: Any = None) -> Asked:
    """The requests of a row. `reference`: the value of data.reference as the file has it.

    Raises BadRow for choices that are no list of different texts, and for a reference that names none of them.
    """
    texts, labels = _texts_of(choices, row["kept"])
    _check(texts)
    is_place = isinstance(reference, int) and not isinstance(reference, bool)
    right = _right(choices, texts, labels, row["references"], is_place=is_place)
    prompt: Prompt = row["prompt"]
    continuations = texts
    if choices.by == "letter":
        continuations = tuple(ascii_uppercase[: len(texts)])
        prompt = _with_letters(prompt, texts)
    delimiter = choices.delimiter
    if delimiter is None:
        delimiter = "" if prompts.chats or (isinstance(prompt, str) and prompt[-1:].isspace()) else " "
    tokens = tuple(prompts.continuation(prompt, delimiter + each, system=row["system"], tools=row["tools"]) for each in continuations)
    return Asked(texts, continuations, right, tokens)


def chosen(asked: Asked, logs: Sequence[float]) -> Chosen:
    """`logs`: the log-likelihood of each choice, in nats."""
    assert all(map(math.isfinite, logs))
    return Chosen(tuple(logs), tuple(map(len, asked.continuations)), asked.right)


def _texts_of(choices: Choices, kept: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The choices, and their labels where the data have some (as AI2's ARC: a group of the lists `text` and `label`)."""
    if choices.texts is not None:
        return tuple(choices.texts), ()
    assert choices.column is not None
    value: Any = kept.get(choices.column)
    if isinstance(value, str):
        try:
            value = json.loads(value)  # a cell of CSV
        except (ValueError, RecursionError):
            raise BadRow(f"{choices.column} is text, not a list of choices") from None
    labels: Any = ()
    if isinstance(value, Mapping):
        value, labels = value.get("text"), value.get("label") or ()
    if not isinstance(value, list):
        raise BadRow(f"{choices.column} is {'missing' if value is None else type(value).__name__}, not a list of choices")
    for place, each in enumerate(value):
        if isinstance(each, bool) or not isinstance(each, (str, int, float)):
            raise BadRow(f"{choices.column}[{place}] is {'missing' if each is None else type(each).__name__}, not text")
    return tuple(map(str, value)), tuple(map(str, labels)) if isinstance(labels, list) and len(labels) == len(value) else ()


def _check(texts: Sequence[str]) -> None:
    if not 2 <= len(texts) <= MOST_CHOICES:
        raise BadRow(f"the row has {len(texts)} choices; it needs 2 to {MOST_CHOICES}")
    places: dict[str, int] = {}
    for place, text in enumerate(texts):
        if not text.strip():
            raise BadRow(f"choice {place + 1} of {len(texts)} is empty")
        first = places.setdefault(text.strip(), place)
        if first != place:
            raise BadRow(f"choices {first + 1} and {place + 1} are the same text: {text.strip()[:80]!r}")


def _right(choices: Choices, texts: Sequence[str], labels: Sequence[str], references: Sequence[str], *, is_place: bool) -> int:
    """The place of the right choice: the reference is its text, its label, its letter, or its number. `is_place`: the file has a whole
    number, which is a label or the number of a choice before it is a text (MMLU).
    """
    if len(references) != 1:
        raise BadRow(f"the row has {len(references) or 'no'} references, but one choice is right")
    wanted = references[0].strip()
    plain = [text.strip() for text in texts]
    if is_place and wanted not in labels and 0 <= int(wanted) - choices.first_number < len(texts):
        return int(wanted) - choices.first_number
    if wanted in plain and not (is_place and wanted in labels):
        return plain.index(wanted)
    if wanted in labels:
        return list(labels).index(wanted)
    letter = wanted.strip("().")
    if len(letter) == 1 and letter in ascii_uppercase[: len(texts)]:
        return ascii_uppercase.index(letter)
    number = wanted.removesuffix(".0")
    if number.isascii() and number.isdecimal() and len(number) < 3 and 0 <= int(number) - choices.first_number < len(texts):
        return int(number) - choices.first_number
    letters, numbers = f"A to {ascii_uppercase[len(texts) - 1]}", f"{choices.first_number} to {choices.first_number + len(texts) - 1}"
    raise BadRow(f"the reference {wanted[:80]!r} is no choice: it is no text, no letter ({letters}) and no number ({numbers}) of one")


def _with_letters(prompt: Prompt, texts: Sequence[str]) -> Prompt:
    """The prompt with its choices and a line `Answer:`, in the form of MMLU (Hendrycks et al. 2021)."""
    lines = [f"{letter}. {text.strip()}" for letter, text in zip(ascii_uppercase, texts, strict=False)]
    below = "\n".join(["", *lines, "Answer:"])
    if isinstance(prompt, str):
        return prompt.rstrip() + below
    content = prompt[-1].get("content")
    if not isinstance(content, str):
        raise BadRow("the last turn of the prompt is no text, under which choices can stand")
    return [*prompt[:-1], {**prompt[-1], "content": content.rstrip() + below}]
