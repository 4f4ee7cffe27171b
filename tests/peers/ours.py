"""Tuneyard's side of the comparison of tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.peers.classes import Made

from tuneyard.api import BadInput
from tuneyard.data.canonical import Canonical
from tuneyard.data.chat import choose_template
from tuneyard.data.messages import BadSample
from tuneyard.data.roles import Chat, detect
from tuneyard.data.samples import Placed
from tuneyard.data.tokens import Encoder

_NO_TEXTS = ("tools", "role", "from", "type", "id", "tool_call_id", "name")


def ours_of(tokenizer: Any, row: dict[str, Any], *, as_chat: bool = False) -> Made:
    """Tokens and loss of a row, or the words of a refusal. `as_chat`: `data.chat` of the JobSpec."""
    try:
        as_chat = as_chat and not {"messages", "conversations", "text"} & set(row)
        sample = Canonical(detect([row], chat=as_chat))(row)
        is_chat = isinstance(sample, Chat)
        loss: Any = ("completion" if "prompt" in row else "assistant") if is_chat else "all" if "text" in row else "completion"
        template = choose_template(tokenizer, None) if is_chat else None
        encoded = Encoder(tokenizer, loss, 4096, "error", template).encode([Placed("row", sample)])
    except (BadInput, BadSample) as error:
        return Made(refused=str(error))
    if encoded.bad:
        return Made(refused=encoded.bad[0][1])
    return Made(tuple(encoded.ids[0].tolist()), tuple(int(label >= 0) for label in encoded.labels[0].tolist()))


def said_in(value: Any) -> Iterator[str]:
    """Texts that a rendering of the row must hold."""
    if isinstance(value, str):
        if value.startswith("{"):  # arguments as JSON text
            yield from said_in(json.loads(value))
        elif len(value) > 3:
            yield value
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NO_TEXTS:
                yield from said_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from said_in(each)
