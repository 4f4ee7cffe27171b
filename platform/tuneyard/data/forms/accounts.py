"""What people export from their accounts: ChatGPT's and Claude's."""

from __future__ import annotations

from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.forms.form import Form, Row

_SAID = ("user", "assistant", "system", "tool")


def _is_chatgpt(row: Row) -> bool:
    return isinstance(row.get("mapping"), dict) and all(isinstance(node, dict) and "parent" in node for node in row["mapping"].values())


def _chatgpt(row: Row) -> dict[str, Any]:
    """The thread that ends in `current_node`."""
    nodes, turns, seen = row["mapping"], list[dict[str, Any]](), set[str]()
    name: Any = row.get("current_node") or next((key for key, node in nodes.items() if not node.get("children")), None)
    while name in nodes and name not in seen:
        seen.add(name)
        turns.extend(_turn(nodes[name].get("message"), name))
        name = nodes[name].get("parent")
    return {"messages": turns[::-1]}


def _turn(message: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(message, dict) or (message.get("author") or {}).get("role") not in _SAID:
        return []
    content = message.get("content") or {}
    parts = content.get("parts") or ([content["text"]] if content.get("text") else [])
    if not all(isinstance(part, str) for part in parts):
        raise BadSample(f"message {where} holds something other than text")
    text = "".join(parts)
    return [{"role": message["author"]["role"], "content": text}] if text.strip() else []


def _claude(row: Row) -> dict[str, Any]:
    turns = row["chat_messages"]
    return {"messages": [{"role": turn.get("sender"), "content": turn.get("text") or turn.get("content")} for turn in turns]}


FORMS = [
    Form(
        "ChatGPT account export",
        "chat",
        _is_chatgpt,
        {
            "title": "Sums",
            "current_node": "b",
            "mapping": {
                "a": {"message": {"author": {"role": "user"}, "content": {"parts": ["2+2?"]}}, "parent": None, "children": ["b"]},
                "b": {"message": {"author": {"role": "assistant"}, "content": {"parts": ["4"]}}, "parent": "a", "children": []},
            },
        },
        _chatgpt,
        lambda _row: ("mapping", "current_node"),
        note="of each conversation, the thread that was shown last is used; answers that were generated anew are left out",
    ),
    Form(
        "Claude account export",
        "chat",
        lambda row: isinstance(row.get("chat_messages"), list) and all(isinstance(turn, dict) for turn in row["chat_messages"]),
        {"name": "Sums", "chat_messages": [{"sender": "human", "text": "2+2?"}, {"sender": "assistant", "text": "4"}]},
        _claude,
        lambda _row: ("chat_messages",),
    ),
]
