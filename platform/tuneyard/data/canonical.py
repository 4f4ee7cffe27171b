"""Rows become samples in one canonical form, by the roles of their columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuneyard.data.messages import TEXT_ALONE, BadSample, carries_loss, looks_like_messages, message_list
from tuneyard.data.roles import Chat, Completion, Pair, Roles, Sample, Text, is_number, judgement
from tuneyard.data.tool_calls import Message, canonical_tools

_ONE_KIND = "put rows of messages and rows of text into separate sources, or set data.chat: true"


class LeftOut(BadSample):
    """A row labelled as an answer that must not be learned. It is neither a bad row nor a sample."""


@dataclass(frozen=True)
class Canonical:
    """Turns a row into a sample. `needs_assistant`: a chat without an assistant turn that carries loss is a bad row."""

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
                return self._pair(row)
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
        """The system turn from a row's system column."""
        return system_turn(row.get(self.roles.columns["system"]) if "system" in self.roles.columns else None)

    def _completion(self, row: Mapping[str, Any]) -> Sample:
        columns = self.roles.columns
        if "label" in columns and judgement(row.get(columns["label"])) is False:
            raise LeftOut(f"{columns['label']} is false: an answer that must not be learned")
        if looks_like_messages(row.get(columns["prompt"])):
            if not self.roles.as_messages:
                raise BadSample(f"{columns['prompt']} holds messages, but text in the first rows", _ONE_KIND)
            prompt = _messages(row, columns["prompt"])
            if isinstance(row.get(columns["completion"]), str) and not looks_like_messages(row[columns["completion"]]):
                return self._chat(
                    [*prompt, {"role": "assistant", "content": _text(row, columns["completion"], may_be_number=True)}], context=len(prompt)
                )
            return self._chat([*prompt, *_messages(row, columns["completion"])], context=len(prompt))
        prompt_text = _text(row, columns["prompt"], may_be_empty=True)
        prompt_text = with_input(prompt_text, row.get(columns["input"]) if "input" in columns else None)
        completion = _text(row, columns["completion"], may_be_number=True)
        if self.roles.as_messages and not self.roles.chat:
            raise BadSample(f"{columns['prompt']} holds text, but messages in the first rows", _ONE_KIND)
        if self.roles.chat:
            prompt = [*self._system(row), _user(prompt_text)]
            return self._chat([*prompt, _assistant(completion)], context=len(prompt))
        return Completion(prompt_text, completion)

    def _pair(self, row: Mapping[str, Any]) -> Pair:
        columns = self.roles.columns
        if looks_like_messages(row.get(columns["chosen"])):
            if not self.roles.as_messages:
                raise BadSample(f"{columns['chosen']} holds messages, but text in the first rows", _ONE_KIND)
            return self._dialogues(row)
        if self.roles.as_messages and not self.roles.chat:
            raise BadSample(f"{columns['chosen']} holds text, but messages in the first rows", _ONE_KIND)
        prompt = _text(row, columns["prompt"], may_be_empty=True) if "prompt" in columns else ""
        chosen, rejected = _text(row, columns["chosen"]), _text(row, columns["rejected"])
        if not prompt:
            prompt, chosen, rejected = _common_start(chosen, rejected)
        pair = _different(Pair(prompt, chosen, rejected))
        if not self.roles.chat:
            return pair
        before = [*self._system(row), _user(prompt)]
        return _different(Pair(before, [_assistant(chosen)], [_assistant(rejected)], self._tools(row)))

    def _dialogues(self, row: Mapping[str, Any]) -> Pair:
        """A pair of messages. Answers that begin with the assistant follow the prompt; others include it. Turns that both answers share
        belong to the prompt.
        """
        columns = self.roles.columns
        chosen, rejected = _messages(row, columns["chosen"]), _messages(row, columns["rejected"])
        asked = row.get(columns["prompt"]) if "prompt" in columns else None
        if asked not in (None, "", []) and (chosen[0]["role"] == "assistant" or not _common_length(chosen, rejected)):
            is_list = looks_like_messages(asked)
            before = _messages(row, columns["prompt"]) if is_list else [{"role": "user", "content": _text(row, columns["prompt"])}]
            chosen, rejected = [*before, *chosen], [*before, *rejected]
        shared = _common_length(chosen, rejected)
        if not shared:
            raise BadSample("chosen and rejected share no first message, and there is no prompt")
        prompt = chosen[:shared]
        if prompt[0]["role"] != "system":
            prompt = [*self._system(row), *prompt]
        return _different(Pair(prompt, chosen[shared:], rejected[shared:], self._tools(row)))


def with_input(prompt: str, extra: Any) -> str:
    """Alpaca's instruction with its input, where it has one."""
    return f"{prompt}\n\n{extra}" if isinstance(extra, str) and extra.strip() else prompt


def system_turn(text: Any) -> list[Message]:
    """The system turn from the value of a system column; none where it is empty."""
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
    if may_be_number and is_number(value):
        if value in (math.inf, -math.inf):
            raise BadSample(f"{column} is {value}, no number that can be written down")
        return str(value)
    if not isinstance(value, str):
        raise BadSample(f"{column} is {type(value).__name__}, not text")
    if not may_be_empty and not value.strip():
        raise BadSample(f"{column} is empty")
    return value


def _messages(row: Mapping[str, Any], column: str) -> list[Message]:
    return message_list(row.get(column), column)


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
