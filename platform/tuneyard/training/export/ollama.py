"""The Modelfile beside a GGUF file, from which `ollama create` makes a model.

Ollama takes the chat template of a GGUF file only where it knows that template by its text; else prompts go to the model as they are. So
the template is written in Ollama's own language, of Go: from what the template of the tokenizer writes for a few chats, and only if the
same pieces make up other chats too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from jinja2 import TemplateError

_ROLES = ("system", "user", "assistant")
_MARK = "\u2e28{}\u2e29"
_PROBES = (("user",), ("system", "user"), ("user", "assistant", "user"), ("system", "user", "assistant", "user", "assistant", "user"))


@dataclass(frozen=True)
class Pieces:
    """A prompt is `first` (or `without_system`, if no system message comes first), each message between the two texts of its role, and
    `last`.
    """

    first: str
    without_system: str
    roles: dict[str, tuple[str, str]]
    last: str

    def prompt(self, roles: Sequence[str]) -> str:
        """The prompt of a chat whose messages are the marks of their places."""
        opening = self.first if roles[0] == "system" else self.without_system
        messages = (f"{self.roles[role][0]}{_MARK.format(place)}{self.roles[role][1]}" for place, role in enumerate(roles))
        return f"{opening}{''.join(messages)}{self.last}"


def modelfile(file: str, tokenizer: Any, ends: Sequence[int], adds_bos: bool) -> tuple[str, bool]:
    """The text of the Modelfile, and whether it has a chat template, where the tokenizer has one. `file`: name of the GGUF file."""
    stops = [text for end in ends if (text := tokenizer.convert_ids_to_tokens(end))]
    lines = [f"FROM ./{file}"]
    pieces = pieces_of(tokenizer, stops, adds_bos) if tokenizer.chat_template is not None else None
    lines.append(f'TEMPLATE """{go_template(pieces) if pieces is not None else "{{ .Prompt }}"}"""')
    return "\n".join([*lines, *(f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in stops), ""]), pieces is not None


def pieces_of(tokenizer: Any, stops: Sequence[str], adds_bos: bool) -> Pieces | None:
    """The pieces of a tokenizer's chat template; None for a template that does more than put messages between fixed texts. `stops`: texts
    that end a message.
    """
    if "strftime_now" in str(tokenizer.chat_template):
        return None  # the date of today would stay for ever
    said = {roles: _rendered(tokenizer, roles, adds_bos) for roles in _PROBES}
    parts, whole = _between(said["user", "assistant", "user"], 3), _between(said[_PROBES[-1]], 6)
    if parts is None or (whole is None) != (said["system", "user"] is None):
        return None
    written = {roles: text for roles, text in said.items() if text is not None}
    found = [each for each in _cuts(parts, whole) if all(each.prompt(roles) == text for roles, text in written.items())]
    return min(found, key=lambda each: _oddness(each, tuple(stops)), default=None)


def _cuts(parts: list[str], whole: list[str] | None) -> Iterator[Pieces]:
    """All ways to cut the texts between messages into what ends one and what begins the next. `parts`: around user, assistant, user;
    `whole`: around a message of the system, and five more; None if the template refuses such messages.
    """
    user_to_assistant, assistant_to_user, after_question = parts[1:]
    pairs = zip(user_to_assistant, after_question, strict=False)
    shared = len([*takewhile(lambda pair: pair[0] == pair[1], pairs)])  # both begin with the end of a question
    for end in range(shared + 1):
        for cut in range(len(assistant_to_user) + 1):
            begin = assistant_to_user[cut:]
            if not parts[0].endswith(begin) or (whole is not None and not whole[1].endswith(begin)):
                continue
            roles = {"user": (begin, user_to_assistant[:end]), "assistant": (user_to_assistant[end:], assistant_to_user[:cut])}
            opening = parts[0].removesuffix(begin)
            if whole is not None:
                roles["system"] = (whole[0], whole[1].removesuffix(begin))
            yield Pieces("" if whole is not None else opening, opening, roles, after_question[end:])


def _oddness(pieces: Pieces, stops: tuple[str, ...]) -> tuple[bool, bool, int, int]:
    """Smaller for a cut at which messages end as a person would say: with a text that ends them."""
    user, assistant = pieces.roles["user"][1], pieces.roles["assistant"][1]
    is_end = bool(stops) and assistant.rstrip().endswith(stops)
    return not is_end, not (stops and user.rstrip().endswith(stops)), -len(assistant) if is_end else len(assistant), -len(user)


def go_template(pieces: Pieces) -> str:
    """The pieces in the language of Go's text/template, over Ollama's `.Messages`."""
    branches = list[str]()
    for role in [role for role in _ROLES if role in pieces.roles]:
        before, after = pieces.roles[role]
        word = "if" if not branches else "else if"
        branches.append(f'{{{{ {word} eq .Role "{role}" }}}}{_text(before)}{{{{ .Content }}}}{_text(after)}')
    opening = _text(pieces.first)
    if pieces.without_system != pieces.first:
        opening = (
            f'{{{{ if and .Messages (eq (index .Messages 0).Role "system") }}}}{_text(pieces.first)}'
            f"{{{{ else }}}}{_text(pieces.without_system)}{{{{ end }}}}"
        )
    return f"{opening}{{{{ range .Messages }}}}{''.join(branches)}{{{{ end }}}}{{{{ end }}}}{_text(pieces.last)}"


def _text(text: str) -> str:
    """A text as part of a template, and of a Modelfile between three quotes."""
    if "{{" in text or '"""' in text:
        return "{{ " + json.dumps(text, ensure_ascii=False) + " }}"
    return text


def _between(text: str | None, messages: int) -> list[str] | None:
    """The texts around the marks of a chat, or None if a mark is missing, twice there, or out of order."""
    if text is None:
        return None
    parts, rest = list[str](), text
    for place in range(messages):
        mark = _MARK.format(place)
        if text.count(mark) != 1 or mark not in rest:
            return None
        before, _, rest = rest.partition(mark)
        parts.append(before)
    return [*parts, rest]


def _rendered(tokenizer: Any, roles: Sequence[str], adds_bos: bool) -> str | None:
    """The prompt of a chat of marks, without the first token where llama.cpp adds it; None where the template refuses the chat."""
    chat = [{"role": role, "content": _MARK.format(place)} for place, role in enumerate(roles)]
    try:
        said = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
    except (TemplateError, ValueError, TypeError):
        return None
    return said.removeprefix(tokenizer.bos_token or "") if adds_bos else said
