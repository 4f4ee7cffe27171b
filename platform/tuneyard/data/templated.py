"""Prompts by `data.template`: the columns of its places, and the prompt of a row."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.prompt_templates import INPUT, PROMPT, prompt_template
from tuneyard.data.bad_sample import BadSample
from tuneyard.data.meaning.numbers import is_number, number_text
from tuneyard.data.meaning.paths import described, value_at, what_is_missing
from tuneyard.data.meaning.unused import found_columns
from tuneyard.data.messages import is_said

COLUMN = "data.template"
"""The column that the prompt of a template has in a row, beside the row's own."""
Row = Mapping[str, Any]


def own_columns(template: str) -> tuple[str, ...]:
    """The places that are columns or paths, and not the roles of prompt and input."""
    return tuple(place for place in prompt_template(template).places if place not in (PROMPT, INPUT))


def uses_prompt(template: str | None) -> bool:
    """Whether a row needs a prompt of its own: where there is no template, too."""
    return template is None or PROMPT in prompt_template(template).places


def columns_of_places(template: str, rows: Sequence[Row], roles: Mapping[str, str], uri: str) -> dict[str, str]:
    """Place -> column or path. `roles`: role -> column of the rows' own prompt and input. An input without a place of its own is among
    them, since it follows the prompt.

    Raises BadInput for a place that no row has, and for one that holds messages.
    """
    places = prompt_template(template).places
    wanted = {place: roles.get(place, place) if place in (PROMPT, INPUT) else place for place in places}
    if PROMPT in places and INPUT in roles:
        wanted[INPUT] = roles[INPUT]
    found = list(dict.fromkeys(name for row in rows for name in row))
    for place, column in wanted.items():
        optional = place == INPUT and PROMPT in places  # rows without one have the text without it
        if not optional and column not in found and all(value_at(row, column) is None for row in rows):
            near = difflib.get_close_matches(column, found, n=1)
            raise BadInput(
                f"{uri}: data.template: no column {column}; columns found: {found_columns(rows)}",
                f"did you mean {{{near[0]}}}?" if near else "name columns of these rows between the braces",
            )
        if any(is_said(value_at(row, column)) for row in rows):
            raise BadInput(
                f"{uri}: data.template makes prompts of texts, and {column} holds messages",
                "leave data.template out: chats have their own form",
            )
    return wanted


def prompt_of(template: str, places: Mapping[str, str], row: Row, whole: Collection[str] = ()) -> str:
    """The prompt of a row. `whole`: columns whose whole numbers have no decimal point. Raises BadSample for a value that is missing, or no
    text or number, and for a row in which all places are empty.
    """
    texts = {place: _text(place, column, row, whole) for place, column in places.items()}
    if not any(text.strip() for text in texts.values()):
        raise BadSample(f"{', '.join(places.values())} {'is' if len(places) == 1 else 'are'} empty")
    return prompt_template(template).filled(texts)


def _text(place: str, column: str, row: Row, whole: Collection[str]) -> str:
    value = value_at(row, column)
    if value is None or value != value:
        if place == INPUT:
            return ""
        raise BadSample(what_is_missing(row, column))
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()  # as JSON writes it
    if not is_number(value):
        raise BadSample(f"{column} is {described(value)}, not text", f"name the text inside it in data.template, such as {{{column}.text}}")
    try:
        return number_text(value, whole=column in whole)
    except ValueError as error:
        raise BadSample(f"{column} is {error}") from error
