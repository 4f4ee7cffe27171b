"""How the rows of a job are read: as the user said, or as `tuneyard init` proposes where the columns do not say it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from tuneyard.api import BadInput
from tuneyard.api.quoting import quoted

if TYPE_CHECKING:
    from tuneyard.data import Inspection


_MARK = "\n\n### Response:\n"
"""Ends the prompts of a model without a chat template."""

_FIELDS = ("columns", "roles", "sheet", "template", "chat")


@dataclass(frozen=True)
class Reading:
    """Fields of `data` that say how rows are read. `why`: comments on proposed fields, by field."""

    columns: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
    sheet: str | None = None
    template: str | None = None
    chat: bool = False
    why: Mapping[str, str] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """The arguments of `data.inspect`."""
        return {name: getattr(self, name) or None for name in _FIELDS[:-1]} | {"chat": self.chat}

    def fields(self) -> Iterator[tuple[str, Any, str]]:
        """Name, value and comment of each field that is set."""
        for name in _FIELDS:
            if value := getattr(self, name):
                yield name, value, self.why.get(name, "")


def proposed_reading(uri: str, found: Inspection, given: Reading) -> Reading:
    """`given`, with columns in other languages, prompts of several columns, labels as completions, and the roles of speakers that are not
    known. What a user said stays.
    """
    from tuneyard.data.meaning.paths import shown
    from tuneyard.data.meaning.proposals import first_rows, proposed_answers, proposed_labels, proposed_pairs, proposed_speakers

    if found.strangers and not given.roles:
        who = proposed_speakers(first_rows(uri, sheet=given.sheet))
        return replace(given, roles=who, why={"roles": "proposed by their names and who begins: check it"}) if who else given
    if found.format not in ("text", "unknown") or given.columns or given.template:
        return given
    rows = first_rows(uri, sheet=given.sheet)
    if pairs := proposed_pairs(rows):
        return replace(given, columns=pairs, why={"columns": "proposed by their names: check it"})
    if (answers := proposed_answers(rows)) is not None:
        texts, answer = answers
        why = f"proposed, since {shown(answer)} is named for an answer: check it"
        if len(texts) == 1:
            return replace(given, columns={"prompt": texts[0], "completion": answer}, why={"columns": why})
        return _with_template(given, answer, _places(texts), why)
    labels = proposed_labels(rows)
    if labels is None:
        return given
    named = ", ".join(labels.listed).replace("{", "{{").replace("}", "}}")
    why = f"{shown(labels.label)} has {len(labels.values)} different values: the model learns to answer with one of them"
    asked = f"Which label fits the text{f': {named}' if named else ''}?"
    return _with_template(given, labels.label, f"{asked}\n\n{_places(labels.texts)}", why)


def _places(texts: Sequence[str]) -> str:
    """The part of a template that holds these columns, each with its name if they are several."""
    return f"{{{texts[0]}}}" if len(texts) == 1 else "\n".join(f"{name}: {{{name}}}" for name in texts)


def _with_template(given: Reading, answer: str, template: str, why: str) -> Reading:
    """`given` with a template. `answer`: the column of completions. A name of a column that no template can hold leaves it as it is."""
    from tuneyard.api.prompt_templates import prompt_template

    try:
        prompt_template(template)
    except ValueError:
        return given
    reasons = {"columns": why, "template": "the prompt of each row: check it"}
    return replace(given, columns={"completion": answer}, template=template, why=reasons)


def answer_beside_text(uri: str, found: Inspection) -> str:
    """What to write if a column beside plain text is the answer to it; empty where there is none."""
    from tuneyard.data.meaning.proposals import LABEL_NAMES

    others = [column.name for column in found.columns if not column.role and "str" in column.types]
    text = found.roles.get("text")
    if found.format != "text" or text is None or not others:
        return ""
    answer = min(others, key=lambda name: name.lower() not in LABEL_NAMES)
    columns = shlex.quote(f"prompt={text},completion={answer}")
    return f"if {answer} is the answer to {text}: tuneyard init --data {quoted(uri)} --columns {columns}"


def check_speakers(uri: str, found: Inspection, reading: Reading) -> None:
    """Raises BadInput where `--roles` names a speaker that no chat has, or leaves one out that has no usual role, and where no speaker
    answers. The next step names all speakers.
    """
    from tuneyard.data.meaning.proposals import FIRST_ROWS, first_rows, speakers_in
    from tuneyard.data.notations.speakers import ROLES, with_strangers

    if not reading.roles and (found.samples or not found.strangers):
        return
    rows = first_rows(uri, sheet=reading.sheet)
    sides = speakers_in(rows)
    absent = [name for name in reading.roles if sides and name.lower() not in sides and len(rows) < FIRST_ROWS]
    if not absent and not found.strangers:
        return
    free = [name for name in sides if name not in {*ROLES, *map(str.lower, reading.roles)}]
    near = {name: next(iter(get_close_matches(name.lower(), free, n=1)), "") for name in absent}
    given = {near.get(name, name): role for name, role in reading.roles.items() if near.get(name, name)}
    who = with_strangers(given, [name for name in found.strangers if name not in given], set(sides) & set(ROLES))
    spoken = f"speakers: {', '.join(sides)}" if sides else f"speakers {', '.join(found.strangers)} have no role"
    cause = f"{', '.join(found.strangers)} would speak without a role; {spoken}"
    if absent:
        cause = f"--roles names {', '.join(absent)}, and no chat has such a speaker; {spoken}"
    pairs = ",".join(f"{name}={role}" for name, role in who.items())
    raise BadInput(
        f"{uri}: {cause}",
        f"say who each speaker is: tuneyard init --data {quoted(uri)} --roles {shlex.quote(pairs)}" if pairs else "leave --roles out",
    )


def with_form_of_prompts(found: Inspection, reading: Reading, has_template: bool | None) -> Reading:
    """How pairs of texts are read: as chats, or with a mark, so that no prompt runs into its answer. `has_template`: whether the model's
    tokenizer has a chat template; None: it is not known.
    """
    from tuneyard.api.prompt_templates import NAMED

    if found.format not in ("prompt-completion", "preference") or found.as_messages:
        return reading
    if reading.template in NAMED:
        return reading  # it has a mark of its own
    if found.format == "preference" and found.roles and "prompt" not in found.roles:
        return reading  # whole dialogues as texts, which have their own marks
    if has_template is False:
        why = "the model has no chat template: this mark stands between a prompt and its answer"
        return replace(reading, template=f"{reading.template or '{prompt}'}{_MARK}", why={**reading.why, "template": why})
    why = "pairs become chats, by the model's chat template"
    why += ": a user's question, and the assistant's answer" if has_template else "; of a tokenizer without one, by Tuneyard's"
    return replace(reading, chat=True, why={**reading.why, "chat": why})
