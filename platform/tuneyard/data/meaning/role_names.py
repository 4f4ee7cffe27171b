"""Names of columns by their role, and names that change the meaning of a row."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

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
REQUIRED: dict[FormatName, tuple[str, ...]] = {
    "preference": ("chosen", "rejected"),
    "chat": ("messages",),
    "prompt-completion": ("prompt", "completion"),
    "text": ("text",),
}
OPTIONAL: dict[FormatName, tuple[str, ...]] = {
    "preference": ("prompt", "input", "tools", "system"),
    "chat": ("tools", "system", "label"),
    "prompt-completion": ("input", "label"),
    "text": (),
}
_TELLING = frozenset((*NAMES["system"], "history", "context", "documents", "tools", "functions", "weight", "label"))
"""Columns that change the meaning of a row, also where all rows have the same value."""
_MEDIA = re.compile(r"(image|img|picture|photo|audio|sound|video)s?(_?(path|url|uri|file|file_?name|b64|base64|bytes|data)s?)?")


@lru_cache(maxsize=4096)
def is_media(name: str) -> bool:
    """Whether a column of this name holds or names images, sound or video."""
    return _MEDIA.fullmatch(name.lower()) is not None


def is_telling(name: str) -> bool:
    """Whether a column of this name changes the meaning of a row, also where all rows have the same value."""
    return name.lower() in _TELLING


def role_named(name: str) -> str:
    """The role that a column of this name usually has; empty for other names."""
    return next((role for role, names in NAMES.items() if name.lower() in names), "")


def is_filled(value: Any) -> bool:
    return value not in (None, "", [], {}) and value == value


def looks_like_a_row(value: Mapping[str, Any]) -> bool:
    """Whether an object of JSON is a row by itself: it has text, or a list of turns, under the name of a role."""
    return any(
        (isinstance(each, str) and role_named(name) not in ("", "label", "system"))
        or (role_named(name) in ("messages", "prompt", "chosen") and isinstance(each, list) and _are_turns(each))
        for name, each in value.items()
    )


def _are_turns(items: list[Any]) -> bool:
    return bool(items) and all(isinstance(item, dict) and ("role" in item or "from" in item) for item in items)
