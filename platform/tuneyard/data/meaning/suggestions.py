"""What a user can do about rows of an unknown format: the paths that look like a role, and why columns named for a role do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.meaning.paths import described, is_path, leaves, structured
from tuneyard.data.meaning.role_names import NAMES, is_filled, role_named
from tuneyard.data.meaning.unused import value_of
from tuneyard.data.messages import looks_like_dialogue, message_list

GENERAL = "name the column of each role, such as data.columns: {prompt: question, completion: reply}"
_MORE_COMPLETIONS = ("reference", "expected", "gold", "solution", "summary", "ground_truth", "translation", "sql", "code")
_MAIN = ("messages", "prompt", "completion", "chosen", "rejected")


def suggestion(rows: Sequence[Mapping[str, Any]]) -> str:
    """The next step: `data.columns` with paths of these rows where they can be guessed, else an example."""
    paths = dict.fromkeys(path for row in rows[:8] for path, _ in leaves(row))
    values = {path: value for path in paths if is_filled(value := value_of(rows, path))}
    dialogue = next((path for path, value in values.items() if looks_like_dialogue(value)), None)
    if dialogue is not None:
        return _columns(messages=dialogue)
    texts = {path: item for path, value in values.items() if (item := _text_in(path, value))}
    asked = _named(texts, NAMES["prompt"])
    answered = _named({path: item for path, item in texts.items() if path != asked}, (*NAMES["completion"], *_MORE_COMPLETIONS))
    if asked and answered:
        return _columns(prompt=texts[asked], completion=texts[answered])
    others = [path for path in values if path not in texts]
    if len(texts) == 1 and not others:
        only = next(iter(texts))
        if role_named(only) in ("prompt", "completion"):
            text = f"to train on the text itself: data.columns: {{text: {only}}}"
            return f"add a column for the {'completion' if role_named(only) == 'prompt' else 'prompt'}; {text}"
        return _columns(text=texts[only])
    if len(texts) == 2 and all(map(is_path, texts)):
        first, second = texts.values()
        return f"say which is the prompt: {_columns(prompt=first, completion=second)}"
    return GENERAL


def _columns(**columns: str) -> str:
    pairs = ", ".join(f"{role}: {_quoted(path)}" for role, path in columns.items())
    return f"data.columns: {{{pairs}}}"


def _quoted(path: str) -> str:
    return f"'{path}'" if "[" in path or " " in path else path


def _text_in(path: str, value: Any) -> str:
    """The path of a text: of the value itself, or of the first item of a list of texts; empty where there is none."""
    if isinstance(value, str):
        parsed = structured(value)
        value = parsed if isinstance(parsed, list) else value
    if isinstance(value, list) and value and isinstance(value[0], str):
        return f"{path}[0]"
    return path if isinstance(value, str) else ""


def _named(texts: Mapping[str, str], names: Sequence[str]) -> str:
    """The first path whose last name is one of `names`, in their order, or else has one as a word: `Correct Answer`."""
    last = {path: path.rpartition(".")[2].lower() for path in texts}
    whole = next((path for name in names for path in texts if last[path] == name), "")
    return whole or next((path for name in names for path in texts if name in re.split(r"[^a-z]+", last[path])), "")


def misfits(rows: Sequence[Mapping[str, Any]]) -> str:
    """Columns that are named for a role and hold something else: `answer holds true or false`; empty where there are none."""
    told = []
    for column in dict.fromkeys(name for row in rows for name in row):
        value = value_of(rows, column)
        role = role_named(column)
        if role not in _MAIN or value is None or (looks_like_dialogue(value) if role == "messages" else isinstance(value, str)):
            continue
        if role == "messages":
            told.append(_no_messages(column, value))
        else:
            told.append(f"{column} holds {described(value)}")
    return "; ".join(filter(None, told))


def _no_messages(column: str, value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], str):
        return f"{column} holds {described(value)} without a speaker"
    try:
        message_list(value, column)
    except BadSample as error:
        return str(error)
    return ""
