"""Columns -> roles: which format the rows have, which column plays which part, and every row in one canonical form."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuneyard.api import BadInput
from tuneyard.data.messages import TEXT_ALONE, BadSample, carries_loss, looks_like_messages, message_list
from tuneyard.data.tool_calls import Message, canonical_tools

FormatName = Literal["chat", "prompt-completion", "preference", "text"]

# Column names by role, most telling first; `input` is alpaca's optional context of an instruction.
NAMES: dict[str, tuple[str, ...]] = {
    "messages": ("messages", "conversations", "conversation", "chat", "dialog", "dialogue"),
    "prompt": ("prompt", "instruction", "question", "query", "input"),
    "input": ("input", "context"),
    "completion": ("completion", "output", "response", "answer"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "text": ("text", "content"),
    "tools": ("tools",),
    "system": ("system", "system_prompt", "system_message"),
    "label": ("label",),
}
_TELLING = (*NAMES["system"], "history", "context", "documents", "tools", "functions", "weight", "label")
"""Columns that change what a row means. Unused ones are named in a warning."""
_MEDIA = ("image", "images", "audio", "audios", "video", "videos")
"""Columns that hold what the text is about. A row that fills one is a bad row."""
REQUIRED: dict[FormatName, tuple[str, ...]] = {
    "preference": ("chosen", "rejected"),
    "chat": ("messages",),
    "prompt-completion": ("prompt", "completion"),
    "text": ("text",),
}
OPTIONAL: dict[FormatName, tuple[str, ...]] = {
    "preference": ("prompt",),
    "chat": ("tools", "system"),
    "prompt-completion": ("input", "label"),
    "text": (),
}


@dataclass(frozen=True)
class Roles:
    """The format of a data set, and the column of each role. `why` says how it was found."""

    format: FormatName
    columns: Mapping[str, str]
    why: str
    as_messages: bool = False
    """Samples are rendered by a chat template: prompts are lists of messages, or become them."""
    unused: tuple[str, ...] = ()
    """Columns that change what a row means elsewhere, and that play no part here."""
    chat: bool = False
    """Pairs of plain texts become chats."""
    media: tuple[str, ...] = ()
    """Columns of images, sound or video."""

    def note(self) -> str | None:
        """What a person should know of the columns."""
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
    """`context` leading messages carry no loss: the prompt of a prompt-completion pair that is written as messages."""

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
    """A preference: all three are texts, or all three are lists of messages."""

    prompt: str | list[Message]
    chosen: str | list[Message]
    rejected: str | list[Message]


Sample = Chat | Completion | Text | Pair


def canonical_json(sample: Sample) -> str:
    """The sample as text that is equal for equal samples: what duplicates and the validation split go by."""
    fields = [type(sample).__name__, *(getattr(sample, name) for name in sample.__slots__)]  # asdict() would copy every message
    return json.dumps(fields, sort_keys=True, ensure_ascii=False, default=str)


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

    Raises BadInput if nothing, or not what was asked for, can be made of the columns.
    """
    found = list(dict.fromkeys(name for row in rows for name in row))
    given = dict(columns or {})
    _check_given(given, found, uri)
    formats: list[FormatName] = list(REQUIRED) if format == "auto" else [f for f in REQUIRED if f == format]
    if format == "auto" and given:
        named = [f for f in REQUIRED if set(given) & set(REQUIRED[f])]
        formats = named or formats
    for candidate in formats:
        roles = _match(candidate, rows, found, given, chat=chat)
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
        "say which column plays which part, such as data.columns: {prompt: question, completion: reply}",
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
    format: FormatName, rows: Sequence[Mapping[str, Any]], found: list[str], given: Mapping[str, str], *, chat: bool
) -> Roles | None:
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
        del chosen["input"]  # `context` beside `question` is common, but only alpaca's instruction is known to go with it
    spelled = ", ".join(f"{role} = {column}" if role != column else role for role, column in chosen.items())
    main = "messages" if format == "chat" else "chosen" if format == "preference" else "prompt" if format == "prompt-completion" else "text"
    as_messages = any(looks_like_messages(row.get(chosen[main])) for row in rows)
    unused = tuple(name for name in found if name.lower() in _TELLING and name not in chosen.values() and _filled(rows, name))
    media = tuple(name for name in found if name.lower() in _MEDIA and name not in chosen.values())
    return Roles(format, chosen, f"columns {spelled}" + (" (given)" if given else ""), as_messages or as_chat, unused, as_chat, media)


def _filled(rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    return any(row.get(column) not in (None, "", []) for row in rows)


def _plausible(role: str, rows: Sequence[Mapping[str, Any]], column: str) -> bool:
    values = [row[column] for row in rows if row.get(column) not in (None, "")]
    if not values:
        return role != "messages"
    if role == "messages":
        return any(looks_like_messages(value) for value in values)
    if role == "label":  # KTO's; other labels are no judgement of an answer
        return all(_judgement(value) is not None for value in values)
    if role == "tools":
        return any(isinstance(value, (list, str)) for value in values)
    may_be_messages = role in ("prompt", "completion", "chosen", "rejected")
    may_be_numbers = role == "completion"
    return any(
        isinstance(value, str) or (may_be_messages and looks_like_messages(value)) or (may_be_numbers and _is_number(value))
        for value in values
    )


def _judgement(value: Any) -> bool | None:
    """Whether an answer was wanted; None where a value says neither. CSV files hold text."""
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _is_number(value: Any) -> bool:
    """NaN is what pandas writes where there is nothing."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


class LeftOut(BadSample):
    """A row that says of itself that it must not be learned: no mistake, and no sample."""


# --- canonical form ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Canonical:
    """Makes samples of rows. `needs_assistant`: a chat without an assistant turn has nothing to learn from."""

    roles: Roles
    needs_assistant: bool = True

    def __call__(self, row: Mapping[str, Any]) -> Sample:
        """Raises BadSample with the reason."""
        columns = self.roles.columns
        for column in self.roles.media:
            if row.get(column) not in (None, "", [], {}):
                raise BadSample(
                    f"{column} is not empty; {TEXT_ALONE}", f"remove the column {column} to train on the text of these rows alone"
                )
        match self.roles.format:
            case "chat":
                messages = _messages(row, columns["messages"])
                if messages[0]["role"] != "system":
                    messages = [*self._system(row), *messages]
                return self._chat(messages, self._tools(row))
            case "prompt-completion":
                return self._completion(row)
            case "preference":
                pair = _pair(row, columns)
                return self._dialogue(pair, row) if self.roles.chat and isinstance(pair.prompt, str) else pair
            case "text":
                return Text(_text(row, columns["text"]))

    def _chat(self, messages: list[Message], tools: list[Any] | None = None, context: int = 0) -> Chat:
        if self.needs_assistant and not any(carries_loss(message) for message in messages[context:]):
            muted = any(message["role"] == "assistant" for message in messages[context:])
            raise BadSample("every assistant turn has weight 0" if muted else "no assistant turn: nothing to learn from")
        return Chat(messages, tools, context)

    def _tools(self, row: Mapping[str, Any]) -> list[Any] | None:
        try:
            return canonical_tools(row.get(self.roles.columns["tools"])) if "tools" in self.roles.columns else None
        except ValueError as error:
            raise BadSample(str(error)) from error

    def _system(self, row: Mapping[str, Any]) -> list[Message]:
        """The system turn that a row keeps in a column of its own."""
        return system_turn(row.get(self.roles.columns["system"]) if "system" in self.roles.columns else None)

    def _completion(self, row: Mapping[str, Any]) -> Sample:
        columns = self.roles.columns
        if "label" in columns and _judgement(row.get(columns["label"])) is False:
            raise LeftOut(f"{columns['label']} is false: an answer that must not be learned")
        if looks_like_messages(row.get(columns["prompt"])):
            prompt = _messages(row, columns["prompt"])
            if isinstance(row.get(columns["completion"]), str) and not looks_like_messages(row[columns["completion"]]):
                return self._chat(
                    [*prompt, {"role": "assistant", "content": _text(row, columns["completion"], may_be_number=True)}], context=len(prompt)
                )
            return self._chat([*prompt, *_messages(row, columns["completion"])], context=len(prompt))
        prompt_text = _text(row, columns["prompt"], may_be_empty=True)
        prompt_text = with_input(prompt_text, row.get(columns["input"]) if "input" in columns else None)
        completion = _text(row, columns["completion"], may_be_number=True)
        if self.roles.chat:
            prompt = [*self._system(row), _user(prompt_text)]
            return self._chat([*prompt, _assistant(completion)], context=len(prompt))
        return Completion(prompt_text, completion)

    def _dialogue(self, pair: Pair, row: Mapping[str, Any]) -> Pair:
        """A pair of plain texts as messages."""
        return Pair([*self._system(row), _user(str(pair.prompt))], [_assistant(str(pair.chosen))], [_assistant(str(pair.rejected))])


def with_input(prompt: str, extra: Any) -> str:
    """Alpaca's instruction with its input, where it has one."""
    return f"{prompt}\n\n{extra}" if isinstance(extra, str) and extra.strip() else prompt


def system_turn(text: Any) -> list[Message]:
    """The first turn that a system column stands for; none where it is empty."""
    return [{"role": "system", "content": text}] if isinstance(text, str) and text.strip() else []


def _user(content: str) -> Message:
    if not content.strip():
        raise BadSample("the prompt is empty, and a chat needs a question")
    return {"role": "user", "content": content.strip()}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content.strip()}


def _text(row: Mapping[str, Any], column: str, *, may_be_empty: bool = False, may_be_number: bool = False) -> str:
    value = row.get(column)
    if value is None or value != value:
        raise BadSample(f"{column} is missing")
    if may_be_number and _is_number(value):
        return str(value)
    if not isinstance(value, str):
        raise BadSample(f"{column} is {type(value).__name__}, not text")
    if not may_be_empty and not value.strip():
        raise BadSample(f"{column} is empty")
    return value


def _messages(row: Mapping[str, Any], column: str) -> list[Message]:
    return message_list(row.get(column), column)


def _pair(row: Mapping[str, Any], columns: Mapping[str, str]) -> Pair:
    as_messages = looks_like_messages(row.get(columns["chosen"]))
    if not as_messages:
        prompt = _text(row, columns["prompt"], may_be_empty=True) if "prompt" in columns else ""
        chosen, rejected = _text(row, columns["chosen"]), _text(row, columns["rejected"])
        if not prompt:
            prompt, chosen, rejected = _common_start(chosen, rejected)
        return _different(Pair(prompt, chosen, rejected))
    chosen_turns, rejected_turns = _messages(row, columns["chosen"]), _messages(row, columns["rejected"])
    asked = row.get(columns["prompt"]) if "prompt" in columns else None
    shared = _common_length(chosen_turns, rejected_turns)
    if shared:
        return _different(Pair(chosen_turns[:shared], chosen_turns[shared:], rejected_turns[shared:]))
    if asked in (None, "", []):
        raise BadSample("chosen and rejected share no first message, and there is no prompt")
    before = (
        _messages(row, columns["prompt"]) if looks_like_messages(asked) else [{"role": "user", "content": _text(row, columns["prompt"])}]
    )
    return _different(Pair(before, chosen_turns, rejected_turns))


def _common_start(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Texts that hold the prompt too (Anthropic's hh-rlhf): what both start with, up to the last turn's label, is the prompt."""
    end = _common_length(chosen, rejected)
    label = chosen.rfind("Assistant:", 0, end)
    end = label + len("Assistant:") if label >= 0 else chosen.rfind(" ", 0, end) + 1
    return chosen[:end], chosen[end:], rejected[end:]


def _common_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many leading items are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _different(pair: Pair) -> Pair:
    if any(message.get("tool_calls") for part in (pair.prompt, pair.chosen, pair.rejected) if isinstance(part, list) for message in part):
        raise BadSample("tool calls in preference pairs cannot be trained on: TRL takes contents of messages alone")
    if any(
        message.get("reasoning_content") for part in (pair.prompt, pair.chosen, pair.rejected) if isinstance(part, list) for message in part
    ):
        raise BadSample(
            "reasoning in preference pairs cannot be trained on: TRL takes contents of messages alone; write it into the content"
        )
    if pair.chosen == pair.rejected:
        raise BadSample("chosen and rejected are the same")
    if not pair.chosen or not pair.rejected:
        raise BadSample("chosen or rejected adds nothing to the prompt")
    return pair
