"""Preferences as verdicts: two answers and which is better, or many answers with scores or ranks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tuneyard.data.bad_sample import BadSample, LeftOut
from tuneyard.data.forms.form import Form, Row, by_paths, texts
from tuneyard.data.meaning.paths import shown, value_at
from tuneyard.data.messages import looks_like_messages

_PROMPTS = ("prompt", "question", "instruction", "query", "history", "context")
_ANSWERS = ("response", "answer", "text", "completion", "output", "content")
_SCORES, _RANKS = ("overall_score", "score", "rating", "reward"), ("rank", "ranking")
_LISTS = ("completions", "answers", "responses", "candidates")

# One entry is one notation: the two answers, the column of the verdict, the values at which the first is better, those for the second.
_TWO: list[tuple[str, str, str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("response_0", "response_1", "better_response_id", (0, "0"), (1, "1")),
    ("human_ref_A", "human_ref_B", "labels", (1, "1"), (0, "0")),
    ("conversation_a", "conversation_b", "winner", ("model_a",), ("model_b",)),
    ("response_a", "response_b", "winner", ("model_a", "a", "A", "response_a"), ("model_b", "b", "B", "response_b")),
    ("response_a", "response_b", "preference", ("A", "a", "response_a"), ("B", "b", "response_b")),
    ("answer_a", "answer_b", "winner", ("model_a", "a", "A"), ("model_b", "b", "B")),
    ("output_1", "output_2", "preference", (1, "1"), (2, "2")),
    ("response1", "response2", "overall_preference", (-1, -2, -3), (1, 2, 3)),
]


def _two(first: str, second: str, verdict: str, at_first: tuple[Any, ...], at_second: tuple[Any, ...]) -> Form:
    def read(row: Row) -> dict[str, Any]:
        value = row[verdict]
        if value in at_first or value in at_second:
            chosen, rejected = (first, second) if value in at_first else (second, first)
            asked = _asked(row)
            parts = {"prompt": value_at(row, asked)} if asked else {}
            if _has_input(row):
                parts["input"] = row["input"] or ""
            return {"chosen": row[chosen], "rejected": row[rejected], **parts}
        raise LeftOut(f"{verdict} is {shown(value)}: neither answer is better")

    def fits(row: Row) -> bool:
        return all(name in row and row[name] is not None for name in (first, second, verdict))

    example = {"prompt": "2+2?", first: "4", second: "5", verdict: at_first[0]}
    if first == "conversation_a":
        example = {
            name: [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": text}]
            for name, text in ((first, "4"), (second, "5"))
        }
        example[verdict] = at_first[0]
    return Form(
        f"{verdict} of {first} and {second}",
        "preference",
        fits,
        example,
        read,
        lambda row: (first, second, verdict, *filter(None, [_asked(row), "input" if _has_input(row) else ""])),
        note="rows without a winner are left out",
    )


def _asked(row: Row) -> str:
    """The column or path of the question, a text or a list of turns; empty where there is none."""
    paths = [path for name in _PROMPTS for path in (name, f"{name}.full_text", f"{name}.text")]
    return next((path for path in paths if isinstance(value := value_at(row, path), str) or looks_like_messages(value)), "")


def _has_input(row: Row) -> bool:
    """Whether an instruction has an input beside it, as Alpaca's and AlpacaFarm's have."""
    return "input" in row and _asked(row) == "instruction"


def _by_scores(row: Row) -> dict[str, Any]:
    if row["score_0"] == row["score_1"]:
        raise LeftOut("both answers have the same score")
    chosen, rejected = ("answer_0", "answer_1") if row["score_0"] > row["score_1"] else ("answer_1", "answer_0")
    return {"prompt": value_at(row, _asked(row)), "chosen": row[chosen], "rejected": row[rejected]}


def _ranked(row: Row) -> tuple[str, str, Callable[[Any], float]] | None:
    """The column of answers, the key of their text, and the order of an answer, the best first; None where rows have no such list."""
    for column in _LISTS:
        items = row.get(column)
        if not isinstance(items, list) or len(items) < 2 or not all(isinstance(item, dict) for item in items):
            continue
        text = next((key for key in _ANSWERS if all(isinstance(item.get(key), str) for item in items)), None)
        for keys, sign in ((_RANKS, 1), (_SCORES, -1)):
            key = next((key for key in keys if all(_is_number(item.get(key)) for item in items)), None)
            if text and key:
                return column, text, lambda item, key=key, sign=sign: sign * float(item[key])
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _best_and_worst(row: Row) -> dict[str, Any]:
    found = _ranked(row)
    if found is None:
        raise BadSample("no list of answers with scores or ranks")
    column, text, order = found
    answers = sorted(row[column], key=order)
    if order(answers[0]) == order(answers[-1]):
        raise LeftOut("all answers have the same score")
    return {"prompt": row[texts(row, *_PROMPTS)[0]], "chosen": answers[0][text], "rejected": answers[-1][text]}


FORMS = [
    *(_two(*entry) for entry in _TWO),
    by_paths(
        "pairs of Stack Exchange",
        "preference",
        {"question": "2+2?", "response_j": "4", "response_k": "5"},
        prompt="question",
        chosen="response_j",
        rejected="response_k",
    ),
    Form(
        "WebGPT comparisons",
        "preference",
        lambda row: all(_is_number(row[f"score_{n}"]) and isinstance(row[f"answer_{n}"], str) for n in (0, 1)) and bool(_asked(row)),
        {"question": {"full_text": "2+2?"}, "answer_0": "4", "answer_1": "5", "score_0": 1.0, "score_1": -1.0},
        _by_scores,
        lambda row: (_asked(row), "answer_0", "answer_1", "score_0", "score_1"),
        note="rows without a winner are left out",
    ),
    Form(
        "answers with scores or ranks",
        "preference",
        lambda row: bool(texts(row, *_PROMPTS)) and _ranked(row) is not None,
        {"prompt": "2+2?", "completions": [{"response": "5", "score": 1}, {"response": "4", "score": 9}]},
        _best_and_worst,
        lambda row: (texts(row, *_PROMPTS)[0], *(found[:1] if (found := _ranked(row)) else ())),
        note="of each row, the best and the worst answer are the pair; answers between them are left out",
    ),
]
