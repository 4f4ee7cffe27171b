"""Questions with choices: MMLU, ARC, C-Eval, HellaSwag, MedMCQA, PIQA. Each becomes text, as lm-evaluation-harness writes MMLU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.forms.form import Form, Row, texts
from tuneyard.data.meaning.paths import shown, structured

_QUESTIONS = ("question", "query", "ctx", "stem", "question_stem", "sentence", "goal", "problem", "prompt")
_CONTEXTS = ("context", "passage", "article", "premise")
_OWN_LABEL = re.compile(r"\(?[A-Za-z][).:]\s*")
"""A letter that a choice carries itself, such as `A) 4`."""
_LISTS = ("choices", "options", "endings", "answer_choices", "candidates")
_COLUMNS = (
    ("A", "B", "C", "D", "E", "F", "G", "H", "I", "J"),
    ("a", "b", "c", "d", "e", "f"),
    ("opa", "opb", "opc", "opd", "ope"),
    ("option1", "option2", "option3", "option4", "option5"),
    ("option_a", "option_b", "option_c", "option_d", "option_e"),
    ("choice1", "choice2", "choice3", "choice4"),
    ("sol1", "sol2"),
    ("ending0", "ending1", "ending2", "ending3"),
)
_ANSWERS = ("answerKey", "answer_idx", "answer_index", "cop", "answer", "label", "correct", "correct_answer", "target", "gold")


def _column(row: Row, names: Sequence[str]) -> str:
    return next((name for name in names if row.get(name) not in (None, "")), "")


def _choices(row: Row) -> tuple[list[str], list[str], list[str]]:
    """Texts and labels of the choices, and the columns that hold them; three empty lists where there are none."""
    for name in _LISTS:
        value = structured(row.get(name))
        if isinstance(value, dict) and isinstance(value.get("text"), list) and isinstance(value.get("label"), list):  # ARC
            return [str(text) for text in value["text"]], [str(label) for label in value["label"]], [name]
        if isinstance(value, dict) and len(value) > 1 and all(isinstance(each, str) for each in value.values()):  # MedQA
            return list(value.values()), [str(label) for label in value], [name]
        if isinstance(value, list) and len(value) > 1 and all(isinstance(each, dict) and {"text", "label"} <= {*each} for each in value):
            return [str(each["text"]) for each in value], [str(each["label"]) for each in value], [name]
        if isinstance(value, list) and len(value) > 1 and all(isinstance(each, (str, int, float)) for each in value):
            return [str(each) for each in value], [str(number) for number in range(len(value))], [name]
    for names in _COLUMNS:
        there = [name for name in names if row.get(name) not in (None, "")]
        if len(there) > 1 and list(names[: len(there)]) == there:
            # option1: answers count from 1, as the columns do. A `label` is a class of `datasets`, which count from 0 (PIQA, COPA).
            counted = "1" in names[0] and _column(row, _ANSWERS) != "label"
            return [str(row[name]) for name in there], [str(number + counted) for number in range(len(there))], there
    return [], [], []


def _fits(row: Row) -> bool:
    return bool(texts(row, *_QUESTIONS)) and bool(_column(row, _ANSWERS)) and bool(_choices(row)[0])


def _read(row: Row) -> dict[str, Any]:
    options, labels, _ = _choices(row)
    if not options or not texts(row, *_QUESTIONS):
        raise BadSample("a question without choices")
    column = _column(row, _ANSWERS)
    number = _number(row.get(column), options, labels)
    if number is None:
        raise BadSample(
            f"{column or _ANSWERS[0]} is {shown(row.get(column))}, none of the {len(options)} choices (labels {', '.join(labels)})"
        )
    if all(map(_OWN_LABEL.match, options)):
        options = [_OWN_LABEL.sub("", option, count=1) for option in options]
    lines = [f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False)]
    question = str(row[texts(row, *_QUESTIONS)[0]]).strip()
    about = [f"{row[name].strip()}\n" for name in texts(row, *_CONTEXTS)[:1]]
    return {"prompt": "\n".join([*about, question, *lines, "Answer:"]), "completion": f" {ascii_uppercase[number]}"}


def _number(answer: Any, options: Sequence[str], labels: Sequence[str]) -> int | None:
    """The choice that an answer names. A number is a label (MMLU: the place), a text is a choice's text, its label or its letter."""
    text = str(int(answer)) if isinstance(answer, float) and answer.is_integer() else str(answer).strip()
    letters, said = list(ascii_uppercase[: len(options)]), [option.strip() for option in options]
    first = [list(labels), said] if isinstance(answer, int | float) else [said, list(labels)]
    for names in (*first, letters, [f"({letter})" for letter in letters]):
        if text in names:
            return names.index(text)
    return letters.index(text.upper()) if text.upper() in letters else None


def _uses(row: Row) -> list[str]:
    return [*texts(row, *_CONTEXTS)[:1], *texts(row, *_QUESTIONS)[:1], *_choices(row)[2], _column(row, _ANSWERS)]


FORMS = [
    Form(
        "a question with choices",
        "prompt-completion",
        _fits,
        {"question": "2+2?", "choices": ["3", "4"], "answer": 1},
        _read,
        _uses,
        note="the prompt is the passage, if any, the question, a line for each choice (A. …) and `Answer:`; the completion is the letter. "
        "A number names a choice by its label or place, a text by its text, label or letter. Places count from 0, and from 1 where the "
        "columns do (option1), unless the answer is a `label`",
    ),
]
