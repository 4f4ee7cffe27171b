"""Tools for labels: Label Studio, Argilla, Doccano, Prodigy."""

from __future__ import annotations

from typing import Any

from tuneyard.data.bad_sample import BadSample, LeftOut
from tuneyard.data.forms.form import Form, Row, texts
from tuneyard.data.meaning.paths import structured

_SUBMITTED = ("submitted", None)
_SPANS = (
    "label holds spans of the text, which no format of samples learns",
    "write the spans into a completion, such as the text with its marks, and name both columns: prompt and completion",
)


def _is_label_studio(row: Row) -> bool:
    return isinstance(row.get("data"), dict) and isinstance(row.get("annotations"), list)


def _label_studio(row: Row) -> dict[str, Any]:
    asked = [name for name, value in row["data"].items() if isinstance(value, str)]
    given = [note for note in row["annotations"] if isinstance(note, dict) and not note.get("was_cancelled")]
    if not given:
        raise LeftOut("no annotation: nothing to learn from")
    values = [result.get("value") or {} for result in given[0].get("result") or ()]
    answers = [value[kind] for value in values for kind in ("text", "choices", "rating") if value.get(kind) not in (None, [])]
    if len(asked) != 1 or len(answers) != 1:
        cause = f"data has the texts {', '.join(asked) or 'none'}, and the annotation has {len(answers)} answers in text or choices"
        raise BadSample(cause, "name their paths: data.columns: {prompt: data.text, completion: 'annotations[0].result[0].value.text[0]'}")
    answer = answers[0]
    return {"prompt": row["data"][asked[0]], "completion": ", ".join(map(str, answer)) if isinstance(answer, list) else str(answer)}


def _argilla_column(row: Row) -> str:
    return next((name for name in row if name.endswith(".responses") and isinstance(structured(row[name]), (list, type(None)))), "")


def _is_argilla(row: Row) -> bool:
    column = _argilla_column(row)
    return bool(column) and f"{column}.status" in row and bool(texts(row, "instruction", "prompt", "question", "text"))


def _argilla(row: Row) -> dict[str, Any]:
    column = _argilla_column(row)
    states = structured(row.get(f"{column}.status")) or []
    said = [answer for answer, state in zip(structured(row[column]) or [], states, strict=False) if state in _SUBMITTED]
    if not said:
        raise LeftOut(f"{column} has no submitted answer")
    return {"prompt": row[texts(row, "instruction", "prompt", "question", "text")[0]], "completion": said[0]}


def _is_argilla_2(row: Row) -> bool:
    return isinstance(row.get("fields"), dict) and isinstance(row.get("responses"), (dict, list))


def _argilla_2(row: Row) -> dict[str, Any]:
    asked = [name for name, value in row["fields"].items() if isinstance(value, str)]
    questions = row["responses"] if isinstance(row["responses"], dict) else {}
    said = [
        answer.get("value")
        for answers in questions.values()
        for answer in (answers or [])[:1]
        if isinstance(answer, dict) and answer.get("status") in _SUBMITTED
    ]
    if not said:
        raise LeftOut("responses has no submitted answer")
    if len(asked) != 1 or len(said) != 1:
        cause = f"fields has the texts {', '.join(asked) or 'none'}, and responses has answers to {', '.join(questions)}"
        raise BadSample(cause, "name their paths: data.columns: {prompt: fields.instruction, completion: 'responses.answer[0].value'}")
    return {"prompt": row["fields"][asked[0]], "completion": said[0]}


def _is_doccano(row: Row) -> bool:
    label = structured(row.get("label"))
    return (
        "id" in row
        and isinstance(row.get("text", row.get("data")), str)
        and isinstance(label, list)
        and all(isinstance(e, str) for e in label)
    )


def _doccano(row: Row) -> dict[str, Any]:
    given = structured(row.get("label"))
    if not given:
        raise LeftOut("no label: nothing to learn from")
    return {"prompt": row.get("text", row.get("data")), "completion": given[0] if len(given) == 1 else ", ".join(given)}


def _has_spans(row: Row) -> bool:
    label = structured(row.get("label", row.get("labels", row.get("entities"))))
    listed = isinstance(label, list) and bool(label) and all(isinstance(each, list) and len(each) == 3 for each in label)
    prodigy = "_task_hash" in row and isinstance(row.get("spans"), list)
    return isinstance(row.get("text", row.get("data")), str) and (listed or prodigy)


def _is_prodigy(row: Row) -> bool:
    answered = row.get("answer") in ("accept", "reject", "ignore") and ("_task_hash" in row or "_input_hash" in row or "accept" in row)
    return answered and isinstance(row.get("text"), str)


def _prodigy(row: Row) -> dict[str, Any]:
    if row["answer"] != "accept":
        raise LeftOut(f"answer is {row['answer']}: a person did not accept the label")
    names = {option["id"]: option.get("text", option["id"]) for option in row.get("options") or () if isinstance(option, dict)}
    picked = [str(names.get(each, each)) for each in row.get("accept") or ()] or [str(row["label"])] * bool(row.get("label"))
    if not picked:
        raise BadSample("neither accept nor label names an answer")
    return {"prompt": row["text"], "completion": ", ".join(picked)}


FORMS = [
    Form(
        "Label Studio",
        "prompt-completion",
        _is_label_studio,
        {"data": {"text": "2+2?"}, "annotations": [{"result": [{"type": "textarea", "value": {"text": ["4"]}}]}]},
        _label_studio,
        lambda row: (*(f"data.{name}" for name in row["data"] if isinstance(row["data"][name], str)), "annotations"),
        note="of each task, the first annotation that was not canceled is used; tasks without one are left out",
    ),
    Form(
        "Argilla 1",
        "prompt-completion",
        _is_argilla,
        {"instruction": "2+2?", "response": "5", "response.responses": ["4"], "response.responses.status": ["submitted"]},
        _argilla,
        lambda row: (*texts(row, "instruction", "prompt", "question", "text")[:1], _argilla_column(row), f"{_argilla_column(row)}.status"),
        note="of each record, the first submitted answer is used; records without one are left out",
    ),
    Form(
        "Argilla 2",
        "prompt-completion",
        _is_argilla_2,
        {"fields": {"instruction": "2+2?"}, "responses": {"answer": [{"value": "4", "status": "submitted"}]}},
        _argilla_2,
        lambda row: (*(f"fields.{name}" for name in row["fields"]), "responses"),
        note="of each record, the first submitted answer is used; records without one are left out",
    ),
    Form("spans", "text", _has_spans, {"text": "Anna sings", "label": [[0, 4, "PERSON"]]}, refusal=_SPANS),
    Form(
        "Prodigy",
        "prompt-completion",
        _is_prodigy,
        {"text": "2+2?", "options": [{"id": "a", "text": "4"}], "accept": ["a"], "answer": "accept", "_task_hash": 1},
        _prodigy,
        lambda row: [name for name in ("text", "options", "accept", "label", "answer") if name in row],
        note="accepted tasks are used; rejected and ignored ones are left out",
    ),
    Form(
        "Doccano",
        "prompt-completion",
        _is_doccano,
        {"id": 1, "text": "2+2?", "label": ["4"]},
        _doccano,
        lambda row: [name for name in ("text", "data", "label") if name in row],
        note="the text is the prompt, and its labels are the completion; texts without a label are left out",
    ),
]
