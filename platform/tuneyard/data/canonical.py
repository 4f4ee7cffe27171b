"""Rows become samples in one canonical form, by the roles of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.data.bad_sample import TEXT_ALONE, BadSample, LeftOut
from tuneyard.data.forms import FORMS
from tuneyard.data.meaning.numbers import is_number, number_text
from tuneyard.data.meaning.paths import described, shown, value_at, what_is_missing
from tuneyard.data.meaning.plausible import judged
from tuneyard.data.meaning.role_names import OPTIONAL, is_filled, is_media, role_named
from tuneyard.data.messages import carries_loss, is_said, looks_like_messages, message_list, system_text, unusual_roles
from tuneyard.data.notations.speakers import with_strangers
from tuneyard.data.roles import Chat, Completion, Pair, Roles, Sample, Text
from tuneyard.data.templated import COLUMN, prompt_of
from tuneyard.data.tool_calls import Message, canonical_tools

__all__ = ["Canonical", "LeftOut", "system_turn", "with_input"]

_ONE_KIND = "put rows of messages and rows of text into separate sources, or set data.chat: true"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Canonical:
    """Turns a row into a sample. `needs_assistant`: a chat without an assistant turn that carries loss is a bad row."""

    roles: Roles
    needs_assistant: bool = True

    def __call__(self, row: Row) -> Sample:
        """Raises BadSample with the reason."""
        self._check_columns(row)
        row = self._shaped(row)
        columns = self.roles.columns
        if "label" in columns and not judged(row.get(columns["label"]), columns["label"]):
            raise LeftOut(f"{columns['label']} is false: an answer that must not be learned")
        match self.roles.format:
            case "chat":
                messages = self._messages(row, columns["messages"])
                if messages[0]["role"] != "system":
                    messages = [*self._system(row), *messages]
                return self._chat(messages, self._tools(row))
            case "prompt-completion":
                return self._completion(row)
            case "preference":
                return self._pair(row)
            case "text":
                return Text(self._text(row, "text"))

    def _check_columns(self, row: Row) -> None:
        """Raises BadSample for media, and for a column that changes the sample and is not among the columns of the first rows."""
        roles = self.roles
        media = roles.media
        if roles.known is not None and roles.format != "text":
            late = (*(row.keys() - roles.known), *roles.idle) if roles.idle or not row.keys() <= roles.known else ()
            for column in late:
                if role_named(column) in OPTIONAL[roles.format] and column not in roles.read_columns and is_filled(row.get(column)):
                    role = role_named(column)
                    raise BadSample(
                        f"{column} ({shown(row[column])}) has a value here and none in the first rows, by which the format was found",
                        f"say that it counts: data.columns: {{{role}: {column}}}",
                    )
            media = (*media, *filter(is_media, late)) if late else media
        for column in media:
            if row.get(column) not in (None, "", [], {}):
                raise BadSample(
                    f"{column} is not empty; {TEXT_ALONE}", f"remove the column {column} to train on the text of these rows alone"
                )

    def _shaped(self, row: Row) -> Row:
        """The row with the columns that the roles name: as its form reads it, with the values at paths, and with the template's prompt."""
        roles = self.roles
        if roles.form:
            row = FORMS[roles.form].shaped(row)
        found = {path: value for path in roles.paths if (value := value_at(row, path)) is not None}
        if roles.template:
            found[COLUMN] = prompt_of(roles.template, roles.places, row, roles.whole)
        return {**row, **found} if found else row

    def _chat(self, messages: list[Message], tools: list[Any] | None = None, context: int = 0) -> Chat:
        if self.needs_assistant and not any(carries_loss(message) for message in messages[context:]):
            if any(message["role"] == "assistant" for message in messages[context:]):
                raise BadSample("every assistant turn has weight 0")
            strange = unusual_roles(messages)
            named = f"; the turns are by {', '.join(strange)}" if strange else ""
            who = with_strangers(self.roles.speakers, strange, {message["role"] for message in messages})
            advice = f"say who they are: data.roles: {{{', '.join(f'{name}: {role}' for name, role in who.items())}}}" if strange else ""
            raise BadSample(f"no assistant turn: nothing to learn from{named}", advice)
        return Chat(messages, tools, context)

    def _tools(self, row: Mapping[str, Any]) -> list[Any] | None:
        try:
            return canonical_tools(row.get(self.roles.columns["tools"])) if "tools" in self.roles.columns else None
        except ValueError as error:
            raise BadSample(str(error)) from error

    def _system(self, row: Mapping[str, Any]) -> list[Message]:
        """The system turn from a row's system column."""
        column = self.roles.columns.get("system")
        text = system_text(row.get(column), column) if column is not None else ""
        return system_turn(text)

    def _messages(self, row: Row, column: str) -> list[Message]:
        value = row.get(column)
        if value is None and column in self.roles.paths:
            raise BadSample(what_is_missing(row, column))
        return message_list(value, column, self.roles.speakers)

    def _said(self, row: Row, column: str) -> list[Message]:
        """The messages of an answer: a list of them, one alone, or the assistant's text."""
        if isinstance(row.get(column), str) and not looks_like_messages(row[column]):
            return [_assistant(self._text_at(row, column))]
        return self._messages(row, column)

    def _text(self, row: Row, role: str, *, may_be_empty: bool = False) -> str:
        return self._text_at(row, self.roles.columns[role], may_be_empty=may_be_empty, may_be_number=role == "completion")

    def _text_at(self, row: Row, column: str, *, may_be_empty: bool = False, may_be_number: bool = False) -> str:
        value = row.get(column)
        if value is None or value != value:
            raise BadSample(what_is_missing(row, column) if column in self.roles.paths else f"{column} is missing")
        if may_be_number and is_number(value):
            try:
                return number_text(value, whole=column in self.roles.whole)
            except ValueError as error:
                raise BadSample(f"{column} is {error}") from error
        if not isinstance(value, str):
            raise _no_text(value, column)
        if not may_be_empty and not value.strip():
            raise BadSample(f"{column} is empty")
        return value

    def _completion(self, row: Row) -> Sample:
        columns = self.roles.columns
        if is_said(row.get(columns["prompt"])):
            if not self.roles.as_messages:
                raise BadSample(f"{columns['prompt']} holds messages, but text in the first rows", _ONE_KIND)
            prompt = self._messages(row, columns["prompt"])
            prompt = [*(self._system(row) if prompt[0]["role"] != "system" else []), *prompt]
            if isinstance(row.get(columns["completion"]), str) and not looks_like_messages(row[columns["completion"]]):
                answer: list[Message] = [{"role": "assistant", "content": self._text(row, "completion")}]
                return self._chat([*prompt, *answer], self._tools(row), context=len(prompt))
            return self._chat([*prompt, *self._messages(row, columns["completion"])], self._tools(row), context=len(prompt))
        prompt_text = self._text(row, "prompt", may_be_empty=True)
        prompt_text = with_input(prompt_text, row.get(columns["input"]) if "input" in columns else None)
        completion = self._text(row, "completion")
        if self.roles.as_messages and not self.roles.chat:
            raise BadSample(f"{columns['prompt']} holds text, but messages in the first rows", _ONE_KIND)
        if self.roles.chat:
            prompt = [*self._system(row), _user(prompt_text)]
            return self._chat([*prompt, _assistant(completion)], context=len(prompt))
        return Completion(prompt_text, completion)

    def _pair(self, row: Row) -> Pair:
        columns = self.roles.columns
        asked = row.get(columns["prompt"]) if "prompt" in columns else None
        if is_said(row.get(columns["chosen"])) or is_said(asked):
            if not self.roles.as_messages:
                column = columns["chosen"] if is_said(row.get(columns["chosen"])) else columns["prompt"]
                raise BadSample(f"{column} holds messages, but text in the first rows", _ONE_KIND)
            return self._dialogues(row)
        if self.roles.as_messages and not self.roles.chat:
            raise BadSample(f"{columns['chosen']} holds text, but messages in the first rows", _ONE_KIND)
        prompt = self._text(row, "prompt", may_be_empty=True) if "prompt" in columns else ""
        prompt = with_input(prompt, row.get(columns["input"]) if "input" in columns else None)
        chosen, rejected = self._text(row, "chosen"), self._text(row, "rejected")
        if not prompt:
            prompt, chosen, rejected = _common_start(chosen, rejected)
        pair = _different(Pair(prompt, chosen, rejected))
        if not self.roles.chat:
            return pair
        before = [*self._system(row), _user(prompt)]
        return _different(Pair(before, [_assistant(chosen)], [_assistant(rejected)], self._tools(row)))

    def _dialogues(self, row: Row) -> Pair:
        """A pair of messages. Answers that begin with the assistant follow the prompt; others include it. Turns that both answers share
        belong to the prompt.
        """
        columns = self.roles.columns
        chosen, rejected = self._said(row, columns["chosen"]), self._said(row, columns["rejected"])
        asked = row.get(columns["prompt"]) if "prompt" in columns else None
        if asked not in (None, "", []) and (chosen[0]["role"] == "assistant" or not _common_length(chosen, rejected)):
            before = self._messages(row, columns["prompt"]) if is_said(asked) else [_user(self._text(row, "prompt"), strip=False)]
            if before[-1]["role"] == "assistant" and chosen[0]["role"] == "assistant":
                raise BadSample(
                    f"{columns['prompt']} ends with a turn of the assistant, and chosen and rejected are further answers",
                    f"take the last turn out of {columns['prompt']}, or put both whole dialogues into chosen and rejected",
                )
            chosen, rejected = [*before, *chosen], [*before, *rejected]
        shared = _common_length(chosen, rejected)
        if not shared:
            raise BadSample("chosen and rejected share no first message, and there is no prompt")
        prompt = chosen[:shared]
        if prompt[0]["role"] != "system":
            prompt = [*self._system(row), *prompt]
        return _different(Pair(prompt, chosen[shared:], rejected[shared:], self._tools(row)))


def _no_text(value: Any, column: str) -> BadSample:
    """The reason why a value is no text, with the path of the text inside it."""
    inside = ""
    if isinstance(value, list) and value and isinstance(value[0], str):
        inside = f"{column}[0]"
    elif isinstance(value, Mapping):
        inside = next((f"{column}.{name}" for name, each in value.items() if isinstance(each, str)), "")
    advice = f"name the text inside it, such as '{inside}' in data.columns" if inside else ""
    what = f", {described(value)}" if isinstance(value, Mapping) else ""
    return BadSample(f"{column} is {type(value).__name__}{what}, not text", advice)


def with_input(prompt: str, extra: Any) -> str:
    """Alpaca's instruction with its input, where it has one."""
    return f"{prompt}\n\n{extra}" if isinstance(extra, str) and extra.strip() else prompt


def system_turn(text: Any) -> list[Message]:
    """The system turn from a text; none where it is empty."""
    return [{"role": "system", "content": text}] if isinstance(text, str) and text.strip() else []


def _user(content: str, *, strip: bool = True) -> Message:
    if not content.strip():
        raise BadSample("the prompt is empty, and a chat needs a question")
    return {"role": "user", "content": content.strip() if strip else content}


def _assistant(content: str) -> Message:
    return {"role": "assistant", "content": content.strip()}


def _common_start(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Prompt, chosen and rejected of texts that include the prompt (Anthropic's hh-rlhf).

    The prompt is the common start of both texts, up to the label of the last turn.
    """
    end = _common_length(chosen, rejected)
    label = chosen.rfind("Assistant:", 0, end)
    end = label + len("Assistant:") if label >= 0 else chosen.rfind(" ", 0, end) + 1
    return chosen[:end], chosen[end:], rejected[end:]


def _common_length(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many leading items are equal."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _different(pair: Pair) -> Pair:
    if pair.chosen == pair.rejected:
        raise BadSample("chosen and rejected are the same")
    for name, answer in (("chosen", pair.chosen), ("rejected", pair.rejected)):
        if not answer:
            raise BadSample(f"{name} adds nothing to the prompt")
        if not isinstance(answer, str) and not any(carries_loss(message) for message in answer):
            raise BadSample(f"{name} has no turn of the assistant to learn from")
    return pair
