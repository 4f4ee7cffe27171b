"""Questions about texts, with answers in lists or objects: SQuAD, TriviaQA."""

from __future__ import annotations

from typing import Any

from tuneyard.data.forms.form import Form, Row, by_paths
from tuneyard.data.meaning.paths import value_at


def _squad_answer(row: Row) -> str:
    """The path of the first answer: SQuAD's own objects, or the lists that `datasets` makes of them."""
    return "answers[0].text" if isinstance(row.get("answers"), list) else "answers.text[0]"


def _fits(row: Row) -> bool:
    answers = row.get("answers")
    known = (isinstance(answers, dict) and isinstance(answers.get("text"), list)) or (
        isinstance(answers, list) and all(isinstance(each, dict) and "text" in each for each in answers)
    )
    return known and isinstance(row.get("question"), str)


def _read(row: Row) -> dict[str, Any]:
    return {"prompt": row["question"], "input": row.get("context"), "completion": value_at(row, _squad_answer(row))}


FORMS = [
    Form(
        "SQuAD",
        "prompt-completion",
        _fits,
        {"context": "2 and 2 make 4.", "question": "2+2?", "answers": {"text": ["4"], "answer_start": [14]}},
        _read,
        lambda row: ("question", "context", _squad_answer(row)),
        note="the prompt is the question and its context; the completion is the first answer, and questions without one are bad rows",
    ),
    by_paths(
        "TriviaQA",
        "prompt-completion",
        {"question": "2+2?", "answer": {"value": "4", "aliases": ["four"]}},
        prompt="question",
        completion="answer.value",
    ),
]
