"""The rows in JSON documents: arrays, objects that hold one list of rows, and tables in the notations of pandas.

Each notation is one entry of `_NOTATIONS`. An object of an unknown notation is a row by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tuneyard.data.forms import FORMS
from tuneyard.data.meaning.role_names import looks_like_a_row, role_named

CONTAINERS = ("data", "rows", "records", "items", "examples", "instances", "results", "hits", "documents", "samples", "conversations")
"""Names that win where an object holds several lists of objects."""
_BESIDE = ("features", "fields", "schema", "columns", "prompts", "index", "errors", "warnings", "links", "providers")
"""Names of lists that describe rows. Beside one list with a usual name they do not count."""
_MOST_DEEP = 4
_NUMBER = re.compile(r"\d+")


class SeveralLists(ValueError):
    """An object that holds several lists of rows. The message names them; `first` is the path of one of them for jq."""

    def __init__(self, lists: Mapping[str, list[Any]]) -> None:
        super().__init__(f"an object with several lists of rows: {', '.join(f'{path} ({len(rows)})' for path, rows in lists.items())}")
        self.first = next(iter(lists))


def rows_of_document(value: Any) -> list[Any]:
    """The rows of a document. Raises SeveralLists."""
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return [value]
    return next((rows for read in _NOTATIONS if (rows := read(value)) is not None), [value])


def _index(value: dict[str, Any]) -> list[Any] | None:
    """pandas' `to_json()`: an object of numbered values for each column."""
    columns = list(value.values())
    if not columns or not all(isinstance(column, dict) and column and all(map(_NUMBER.fullmatch, column)) for column in columns):
        return None
    if any(column.keys() != columns[0].keys() for column in columns):
        return None
    return [{name: column[number] for name, column in value.items()} for number in columns[0]]


def _split(value: dict[str, Any]) -> list[Any] | None:
    """pandas' `orient="split"`: names of columns, and a list for each row."""
    names, rows = value.get("columns"), value.get("data")
    if not isinstance(names, list) or not isinstance(rows, list) or not all(isinstance(r, list) and len(r) == len(names) for r in rows):
        return None
    return [dict(zip(map(str, names), row, strict=True)) for row in rows]


def _columns(value: dict[str, Any]) -> list[Any] | None:
    """A list for each column, all equally long (`orient="list"`, `Dataset.to_dict()`)."""
    columns = list(value.values())
    if not columns or not all(isinstance(column, list) and column for column in columns) or len({len(column) for column in columns}) > 1:
        return None
    if any(isinstance(column[0], dict) for column in columns):
        return None
    return [dict(zip(value, each, strict=True)) for each in zip(*columns, strict=True)]


def _row(value: dict[str, Any]) -> list[Any] | None:
    return [value] if looks_like_a_row(value) or any(form.has(value) for form in FORMS.values()) else None


def _inner_list(value: dict[str, Any]) -> list[Any] | None:
    """The only list of objects inside, or the one with a usual name."""
    lists = dict(_lists(value, "", 1))
    if not lists:
        return None
    usual = [path for path in lists if path.rpartition(".")[2] in CONTAINERS]
    others = [path for path in lists if path not in usual[:1] and path.rpartition(".")[2] not in _BESIDE]
    if len(lists) > 1 and (not usual or others):
        raise SeveralLists(lists)
    rows = lists[usual[0] if usual else next(iter(lists))]
    return [each for row in rows for each in _questions(row)]


def _lists(value: dict[str, Any], place: str, depth: int) -> Iterator[tuple[str, list[Any]]]:
    for name, each in value.items():
        path = f"{place}.{name}"
        if isinstance(each, list) and each and isinstance(each[0], dict) and not _are_turns(name, each):
            yield path, each
        elif isinstance(each, dict) and depth < _MOST_DEEP:
            yield from _lists(each, path, depth + 1)


def _are_turns(name: str, items: list[Any]) -> bool:
    """Whether a list is one conversation: its objects say who speaks, and its name is that of messages, or none of those of rows."""
    speak = all(isinstance(item, dict) and ("role" in item or "from" in item) for item in items)
    return speak and (role_named(name) == "messages" or name not in CONTAINERS)


def _questions(row: Any) -> list[Any]:
    """SQuAD's own files: the questions of all paragraphs, each with its context. Other rows stay."""
    if not isinstance(row, dict) or not isinstance(row.get("paragraphs"), list):
        return [row]
    paragraphs = [paragraph for paragraph in row["paragraphs"] if isinstance(paragraph, dict) and isinstance(paragraph.get("qas"), list)]
    above = {"title": row["title"]} if "title" in row else {}
    return [
        {**above, "context": paragraph.get("context"), **question}
        for paragraph in paragraphs
        for question in paragraph["qas"]
        if isinstance(question, dict)
    ] or [row]


_NOTATIONS: list[Callable[[dict[str, Any]], list[Any] | None]] = [_row, _index, _split, _columns, _inner_list]
