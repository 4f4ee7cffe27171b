"""The token with which a chat template ends an assistant's turn. It may differ from the tokenizer's end token.

Qwen's base tokenizers end texts with `<|endoftext|>` and turns with `<|im_end|>`. If an engine stops at the end token only, a model trained
with the template continues after its answer.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

from tuneyard.data.chat import whole_text
from tuneyard.data.messages import BadSample
from tuneyard.data.template_omissions import Span

_QUESTION, _ANSWER = "first question", "first answer"
_EXCHANGE = ({"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER})
_DIALOGUES = (_EXCHANGE, (*_EXCHANGE, {"role": "user", "content": "second question"}))
"""The second dialogue is for templates that put no token after the last answer: the token that opens the next turn then ends this one."""


def turn_end(tokenizer: Any) -> int | None:
    """The id of the special or added token that follows an assistant's content, ignoring blanks.

    None: the tokenizer has no chat template, the template ends turns with plain text or without any text, or it refuses a plain dialogue.
    """
    if tokenizer.chat_template is None:
        return None
    tokens = _whole_tokens(tokenizer)
    for dialogue in _DIALOGUES:
        behind = _behind_answer(tokenizer, dialogue)
        if behind:
            found = _first(tokens, behind, anywhere=dialogue is _EXCHANGE)
            return None if found is None else tokens[found]
    return None


def ends_last_answer(tokenizer: Any, template: str) -> bool:
    """Whether a chat template, given as Jinja, puts a special or added token after the last answer of a chat."""
    tokenizer = _with_template(tokenizer, template)
    return _first(_whole_tokens(tokenizer), _behind_answer(tokenizer, _EXCHANGE), anywhere=True) is not None


def _first(tokens: Collection[str], text: str, *, anywhere: bool) -> str | None:
    """The token at the beginning of a text, or, with `anywhere`, the first token in its first line; the longest of several at one place.

    Templates may put a full stop or a quotation mark between an answer and its end.
    """
    text = text.partition("\n")[0]
    found = [(text.find(token), -len(token), token) for token in tokens if token in text]
    return min(found)[2] if found and (anywhere or min(found)[0] == 0) else None


def _with_template(tokenizer: Any, template: str) -> Any:
    changed = copy.copy(tokenizer)
    changed.chat_template = template
    return changed


def _whole_tokens(tokenizer: Any) -> dict[str, int]:
    """Content -> id of special and added tokens, which never come from plain text; tokens of blanks are left out."""
    added = {token.content: number for number, token in tokenizer.added_tokens_decoder.items()}
    special = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
    return {content: number for content, number in {**added, **special}.items() if content.strip()}


def _behind_answer(tokenizer: Any, dialogue: tuple[dict[str, str], ...]) -> str:
    """The text of the template after the assistant's content; empty where it refuses the dialogue or changes the content."""
    try:
        text = whole_text(list(dialogue), tokenizer)
    except BadSample:
        return ""
    _, answer, behind = text.rpartition(_ANSWER)
    return behind.lstrip() if answer else ""


def end_text(tokenizer: Any, template: str) -> str | None:
    """The text of the token with which `template`, not necessarily the tokenizer's own, ends a turn."""
    end = turn_end(_with_template(tokenizer, template))
    return None if end is None else str(tokenizer.convert_ids_to_tokens(end))


def ends_of(tokenizer: Any) -> tuple[str, ...]:
    """Texts of tokens that may end a turn. A tool call often ends with another token than an answer."""
    return tuple(_whole_tokens(tokenizer))


def with_ends(text: str, spans: Sequence[Span], end: str, others: tuple[str, ...] = ()) -> tuple[str, list[Span]]:
    """A rendered chat whose spans include their end tokens: `end`, or a token of `others` that the template has put there.

    Templates made for engines only (vLLM's ChatML) write the end token where another turn follows, but not after the last turn. A model
    that was never trained on it continues after its answer.
    """
    found: list[Span] = []
    for i, (start, stop) in enumerate(spans):
        goes_on = i + 1 < len(spans) and spans[i + 1][0] == stop
        behind = text[stop:]
        if not goes_on and not text[start:stop].rstrip().endswith((end, *others)):
            if behind.lstrip().startswith(end):
                stop += len(behind) - len(behind.lstrip()) + len(end)
            elif not behind.strip():
                text, stop = text[:stop] + end, stop + len(end)
        found.append((start, stop))
    return text, found
