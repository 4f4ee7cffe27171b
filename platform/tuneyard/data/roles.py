"""The format of rows, and the role of each column, found by column names and values."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuneyard.api import BadInput
from tuneyard.data.messages import looks_like_messages, unpacked
from tuneyard.data.tool_calls import Message

FormatName = Literal["chat", "prompt-completion", "preference", "text"]

# Column names by role, the most specific first; `input` is alpaca's optional context of an instruction.
NAMES: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation", "chat", "dialog", "dialogue"),
    "prompt": ("prompt", "instruction", "question", "query", "input"),
    "input": ("input", "context"),
    "completion": ("completion", "output", "response", "answer", "reply", "target"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "text": ("text", "content"),
    "tools": ("tools",),
    "system": ("system", "system_prompt", "system_message"),
    "label": ("label",),
}
_TELLING = (*NAMES["system"], "history", "context", "documents", "tools", "functions", "weight", "label")
"""Columns that change the meaning of a row. A warning names such columns without a role."""
_MEDIA = ("image", "images", "audio", "audios", "video", "videos")
"""Columns with media that the text refers to. A row with a value in one is a bad row."""
REQUIRED: dict[FormatName, tuple[str, ...]] = {
    "preference": ("chosen", "rejected"),
    "chat": ("messages",),
    "prompt-completion": ("prompt", "completion"),
    "text": ("text",),
}
OPTIONAL: dict[FormatName, tuple[str, ...]] = {
    "preference": ("prompt", "tools", "system"),
    "chat": ("tools", "system"),
    "prompt-completion": ("input", "label"),
    "text": (),
}


@dataclass(frozen=True)
class Roles:
    """The format of a data set, and the column of each role. `why`: how the format was found."""

    format: FormatName
    columns: Mapping[str, str]
    why: str
    as_messages: bool = False
    """A chat template renders the samples: prompts are lists of messages, or are made into such."""
    unused: tuple[str, ...] = ()
    """Columns that usually change the meaning of a row, but have no role here."""
    chat: bool = False
    """Pairs of plain texts become chats."""
    media: tuple[str, ...] = ()
    """Columns of images, sound or video."""

    def note(self) -> str | None:
        """A warning about unused columns; None where there are none."""
        if not self.unused:
            return None
        one = len(self.unused) == 1
        parts = ", ".join(role for role in (*REQUIRED[self.format], *OPTIONAL[self.format]))
        return (
            f"column{'' if one else 's'} {', '.join(self.unused)} {'is' if one else 'are'} not used; "
            f"data.columns can give {'it' if one else 'them'} a part of {self.format}: {parts}"
        )


@dataclass(frozen=True, slots=True)
class Chat:
    """A dialogue. The first `context` messages carry no loss: they are the prompt of a prompt-completion pair in messages."""

    messages: list[Message]
    tools: list[Any] | None = None
    context: int = 0


@dataclass(frozen=True, slots=True)
class Completion:
    prompt: str
    completion: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A preference: all three are texts, or all three are lists of messages, which may have tools."""

    prompt: str | list[Message]
    chosen: str | list[Message]
    rejected: str | list[Message]
    tools: list[Any] | None = None

    @property
    def halves(self) -> tuple[Chat, Chat] | tuple[Completion, Completion]:
        """The prompt with the chosen answer, and with the rejected one. Only the answers carry loss."""
        if isinstance(self.prompt, str):
            return Completion(self.prompt, str(self.chosen)), Completion(self.prompt, str(self.rejected))
        chosen, rejected = ([*self.prompt, *answer] for answer in (self.chosen, self.rejected) if not isinstance(answer, str))
        return Chat(chosen, self.tools, len(self.prompt)), Chat(rejected, self.tools, len(self.prompt))


Sample = Chat | Completion | Text | Pair
_JSON = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


def canonical_json(sample: Sample) -> str:
    """The sample as text, equal for equal samples. Duplicates and the validation split are decided by it."""
    fields = [type(sample).__name__, *(getattr(sample, name) for name in sample.__slots__)]  # asdict() would copy every message
    return _JSON.encode(fields)


# --- detection --------------------------------------------------------------------------------------------------------------------


def detect(
    rows: Sequence[Mapping[str, Any]],
    *,
    columns: Mapping[str, str] | None = None,
    format: str = "auto",
    chat: bool = False,
    uri: str = "data",
) -> Roles:
    """Find format and roles from a few rows. `columns` (role -> column) wins over guesses, `format` over the order of guesses.
    `chat`: pairs of plain texts become chats.

    Raises BadInput where the columns fit no format, or not the requested one.
    """
    found = list(dict.fromkeys(name for row in rows for name in row))
    given = dict(columns or {})
    _check_given(given, found, uri)
    formats: list[FormatName] = list(REQUIRED) if format == "auto" else [f for f in REQUIRED if f == format]
    if format == "auto" and given:
        named = [f for f in REQUIRED if set(given) & set(REQUIRED[f])]
        formats = named or formats
    for candidate in formats:
        roles = _match(candidate, rows, found, given, chat=chat, uri=uri)
        if roles is not None and chat and roles.format == "text":
            raise BadInput(f"{uri}: data.chat is true, and rows are plain text ({roles.why})", "remove data.chat, or name other columns")
        if roles is not None:
            return roles
    if format == "auto" and not chat and not given and len(found) == 1 and all(isinstance(row.get(found[0]), str) for row in rows):
        return Roles("text", {"text": found[0]}, f"the only column, {found[0]}, holds text")
    wanted = "; ".join(f"{f}: {' + '.join('/'.join(NAMES[role]) for role in REQUIRED[f])}" for f in formats)
    raise BadInput(
        f"{uri}: {'of no known format' if format == 'auto' else f'not of format {format}'}; columns found: {', '.join(found) or 'none'}; "
        f"expected {wanted}",
        "labels (KTO) give no pairs: use objective: sft, which learns from answers labelled true"
        if formats == ["preference"] and "label" in found
        else "name the column of each role, such as data.columns: {prompt: question, completion: reply}",
    )


def _check_given(given: Mapping[str, str], found: list[str], uri: str) -> None:
    for role, column in given.items():
        if role not in NAMES:
            raise BadInput(f"{uri}: data.columns: {role} is not a role", f"roles: {', '.join(NAMES)}")
        if column not in found:
            near = difflib.get_close_matches(column, found, n=1)
            raise BadInput(
                f"{uri}: no column {column} (for the role {role}); columns found: {', '.join(found) or 'none'}",
                f"did you mean {near[0]}?" if near else "correct data.columns",
            )


def _match(
    format: FormatName, rows: Sequence[Mapping[str, Any]], found: list[str], given: Mapping[str, str], *, chat: bool, uri: str
) -> Roles | None:
    """The roles in a format; None where the columns do not fit it. Raises BadInput for a given role that is of no use."""
    lower = {name.lower(): name for name in reversed(found)}
    chosen: dict[str, str] = {}
    as_chat = chat and format in ("prompt-completion", "preference")
    for role in (*REQUIRED[format], *OPTIONAL[format], *(("system",) if as_chat else ())):
        guesses = [lower[name] for name in NAMES[role] if name in lower and lower[name] not in [*chosen.values(), *given.values()]]
        column = given.get(role) or next((g for g in guesses if _plausible(role, rows, g)), None)
        if column is not None:
            chosen[role] = column
    if not all(role in chosen for role in REQUIRED[format]):
        return None
    if chosen.get("input") and chosen["prompt"].lower() != "instruction" and "input" not in given:
        del chosen["input"]  # `context` beside `question` is common, but only alpaca's instruction is meant to include it
    main = "messages" if format == "chat" else "chosen" if format == "preference" else "prompt" if format == "prompt-completion" else "text"
    as_messages = any(looks_like_messages(row.get(chosen[main])) for row in rows) or as_chat
    if format == "preference" and not as_messages:
        for role in [role for role in ("tools", "system") if chosen.pop(role, None) and role in given]:
            raise BadInput(f"{uri}: data.columns: {role}: only a chat template renders it; these pairs are texts", "set data.chat: true")
    spelled = ", ".join(f"{role} = {column}" if role != column else role for role, column in chosen.items())
    unused = tuple(name for name in found if name.lower() in _TELLING and name not in chosen.values() and _filled(rows, name))
    media = tuple(name for name in found if name.lower() in _MEDIA and name not in chosen.values())
    why = f"columns {spelled}{' (given)' if given else ''}{_known_as(rows, chosen)}"
    return Roles(format, chosen, why, as_messages, unused, as_chat, media)


def _known_as(rows: Sequence[Mapping[str, Any]], chosen: Mapping[str, str]) -> str:
    """The well-known name of a variant of a format; empty where it has none."""
    first = rows[0] if rows else {}
    turns = unpacked(first.get(chosen.get("messages", "")))
    if isinstance(turns, list) and turns and isinstance(turns[0], dict) and "from" in turns[0]:
        return ": ShareGPT's names"
    if "label" in chosen:
        return ": KTO's labels"
    if "input" in chosen and chosen["prompt"].lower() == "instruction":
        return ": Alpaca's"
    if "chosen" in chosen and "prompt" not in chosen and isinstance(first.get(chosen["chosen"]), str):
        return ": whole dialogues, as HH's"
    return ""


def _filled(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    return any(row.get(column) not in (None, "", []) for row in rows)


def _plausible(role: str, rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    values = [row[column] for row in rows if row.get(column) not in (None, "")]
    if not values:
        return role != "messages"
    if role == "messages":
        return any(looks_like_messages(value) for value in values)
    if role == "label":  # KTO's labels; others do not judge an answer
        return all(judgement(value) is not None for value in values)
    if role == "tools":
        return any(isinstance(value, (list, str)) for value in values)
    may_be_messages = role in ("prompt", "completion", "chosen", "rejected")
    may_be_numbers = role == "completion"
    return any(
        isinstance(value, str) or (may_be_messages and looks_like_messages(value)) or (may_be_numbers and is_number(value))
        for value in values
    )


def judgement(value: Any) -> bool | None:
    """A KTO label as true or false; None for any other value. CSV files hold labels as text."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def is_number(value: Any) -> bool:
    """Whether a value is a number. NaN is not: pandas writes it for a missing value."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
