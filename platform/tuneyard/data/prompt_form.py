"""The form of the prompts in training: chats or plain text. It is kept in the tokenizer's settings, beside the model.

Score tasks use the same form unless the JobSpec sets another one: a model that was trained on plain prompts has never seen its chat
template.
"""

from __future__ import annotations

from typing import Any

from tuneyard.api import BadInput

_KEY = "tuneyard_prompts"
_CHAT, _PLAIN = "chat", "plain"


def set_prompt_form(tokenizer: Any, *, chats: bool) -> None:
    """Have `tokenizer.save_pretrained` write the form into tokenizer_config.json."""
    tokenizer.init_kwargs[_KEY] = _CHAT if chats else _PLAIN


def prompts_are_chats(tokenizer: Any) -> bool:
    """Whether training used chats. Where no form is noted: whether the tokenizer has a chat template."""
    form = tokenizer.init_kwargs.get(_KEY)
    if form not in (None, _CHAT, _PLAIN):
        raise BadInput(
            f"tokenizer_config.json: {_KEY} is {form!r}", f"set it to {_CHAT} or {_PLAIN}, as the model was trained, or remove it"
        )
    return bool(tokenizer.chat_template is not None and form != _PLAIN)
