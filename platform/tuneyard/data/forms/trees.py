"""Turns that are not in one list: trees of replies, and a turn in each row."""

from __future__ import annotations

from typing import Any

from tuneyard.data.forms.form import Form, Row
from tuneyard.data.notations.speakers import ALIASES, ROLES
from tuneyard.data.notations.turns import CONTENT_KEYS, SPEAKER_KEYS

_SPEAKERS = frozenset((*ROLES, *ALIASES, "customer", "agent"))


def _is_tree(row: Row) -> bool:
    first = row.get("prompt")
    return isinstance(first, dict) and isinstance(first.get("replies"), list) and isinstance(first.get("text"), str)


def _thread(row: Row) -> dict[str, Any]:
    """The thread of the best-ranked replies; replies without a rank come last, in their order."""
    turns, node = list[dict[str, Any]](), row["prompt"]
    while node:
        turns.append({"role": node.get("role"), "content": node.get("text")})
        replies = [reply for reply in node.get("replies") or () if isinstance(reply, dict)]
        node = min(replies, key=lambda reply: (reply.get("rank") is None, reply.get("rank") or 0), default=None)
    return {"messages": turns}


def _is_one_turn(row: Row) -> bool:
    lower = {str(name).lower(): value for name, value in row.items()}
    says = [name for name in SPEAKER_KEYS if str(lower.get(name, "")).strip().lower() in _SPEAKERS]
    return bool(says) and any(isinstance(lower.get(name), str) for name in CONTENT_KEYS if name not in says)


FORMS = [
    Form(
        "trees of OpenAssistant",
        "chat",
        _is_tree,
        {"prompt": {"role": "prompter", "text": "2+2?", "replies": [{"role": "assistant", "text": "4", "rank": 0, "replies": []}]}},
        _thread,
        lambda _row: ("prompt",),
        note="of each tree, the thread of the best-ranked replies is used; other replies are left out",
    ),
    Form(
        "a turn in each row",
        "chat",
        _is_one_turn,
        {"conversation": 1, "role": "user", "text": "2+2?"},
        refusal=(
            f"each row is one turn of a conversation, with its speaker in a column ({' or '.join(SPEAKER_KEYS[:5])})",
            "gather the turns of each conversation into one row with messages, by the column that names the conversation, or by parent_id",
        ),
    ),
]
