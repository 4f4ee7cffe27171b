"""The form of the prompts in training: chats or plain text, and their template. It is kept in the tokenizer's settings, beside the model.

Score tasks use the same form unless the JobSpec sets another one: a model that was trained on plain prompts has never seen its chat
template.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tuneyard.api import BadInput
from tuneyard.api.prompt_templates import INPUT, PROMPT, of_prompt, prompt_template

_KEY, TEMPLATE_KEY = "tuneyard_prompts", "tuneyard_prompt_template"
_CHAT, _PLAIN = "chat", "plain"


def set_prompt_form(tokenizer: Any, *, chats: bool, template: str = "") -> None:
    """Have `tokenizer.save_pretrained` write the form into tokenizer_config.json. `template`: data.template; empty: there was none."""
    tokenizer.init_kwargs[_KEY] = _CHAT if chats else _PLAIN
    tokenizer.init_kwargs.pop(TEMPLATE_KEY, None)
    if template:
        tokenizer.init_kwargs[TEMPLATE_KEY] = of_prompt(template)


def templated(tokenizer: Any, prompt: str) -> str:
    """A prompt of text in the template of the model's training; as it is where there was none. For a template of several columns the text
    is a JSON object with a text for each.

    Raises BadInput for a prompt that does not fill the template, and for a template that is damaged.
    """
    given = template_of(tokenizer)
    if not given:
        return prompt
    template = prompt_template(given)
    if set(template.places) - {INPUT} == {PROMPT}:
        return template.filled({PROMPT: prompt, INPUT: ""})
    return template.filled(_columns(template.places, prompt))


def template_of(tokenizer: Any) -> str:
    """The `data.template` of the model's training; empty where there was none. Raises BadInput for one that is damaged."""
    given = tokenizer.init_kwargs.get(TEMPLATE_KEY)
    try:
        return given if given is not None and prompt_template(given) else ""
    except (ValueError, TypeError) as error:
        raise BadInput(
            f"tokenizer_config.json: {TEMPLATE_KEY}: {error}", "write the data.template of the training there, or remove it"
        ) from error


def _columns(places: Sequence[str], prompt: str) -> dict[str, str]:
    try:
        given = json.loads(prompt)
    except ValueError:
        given = None
    if not isinstance(given, dict) or set(given) != set(places) or not all(isinstance(value, str) for value in given.values()):
        raise BadInput(
            f"the model was trained on prompts that a template makes of {', '.join(places)}, and this one gives no such texts",
            f"write them as JSON, in one line: {json.dumps(dict.fromkeys(places, '…'), ensure_ascii=False)}",
        )
    return given


def prompts_are_chats(tokenizer: Any) -> bool:
    """Whether training used chats. Where no form is noted: whether the tokenizer has a chat template."""
    form = tokenizer.init_kwargs.get(_KEY)
    if form not in (None, _CHAT, _PLAIN):
        raise BadInput(
            f"tokenizer_config.json: {_KEY} is {form!r}", f"set it to {_CHAT} or {_PLAIN}, as the model was trained, or remove it"
        )
    return bool(tokenizer.chat_template is not None and form != _PLAIN)
