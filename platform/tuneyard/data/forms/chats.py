"""Chats whose turns stand in other columns than `messages`: Gemini, PaLM, Cohere, histories of LLaMA-Factory."""

from __future__ import annotations

from typing import Any

from tuneyard.data.forms.form import Form, Row
from tuneyard.data.notations.turns import looks_like_turn

_GEMINI = ("contents", "systemInstruction", "system_instruction", "tools")
_COHERE = ("message", "chat_history", "preamble", "text", "response")


def _are_turns(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(looks_like_turn, value))


def _gemini(row: Row) -> dict[str, Any]:
    tools = row.get("tools")
    return {"messages": row["contents"], "system": row.get("systemInstruction") or row.get("system_instruction"), "tools": tools}


def _is_cohere(row: Row) -> bool:
    return isinstance(row.get("message"), str) and isinstance(row.get("chat_history"), list)


def _cohere(row: Row) -> dict[str, Any]:
    history = [{"role": turn.get("role"), "content": turn.get("message", turn.get("content"))} for turn in row["chat_history"]]
    system = [{"role": "system", "content": row["preamble"]}] if row.get("preamble") else []
    return {
        "prompt": [*system, *history, {"role": "user", "content": row["message"]}],
        "completion": row.get("text") or row.get("response"),
    }


def _has_history(row: Row) -> bool:
    history, asked = row.get("history"), row.get("instruction", row.get("prompt"))
    pairs = isinstance(history, list) and all(isinstance(each, (list, tuple)) and len(each) == 2 for each in history)
    return pairs and isinstance(asked, str) and isinstance(row.get("output", row.get("response")), str)


def _history(row: Row) -> dict[str, Any]:
    asked, more = row.get("instruction", row.get("prompt")), row.get("input") or row.get("query")
    turns = [*row["history"], (f"{asked}\n\n{more}" if more else asked, row.get("output", row.get("response")))]
    said = [{"role": role, "content": text} for turn in turns for role, text in zip(("user", "assistant"), turn, strict=True)]
    return {"messages": said, "system": row.get("system"), "tools": row.get("tools")}


def _is_bison(row: Row) -> bool:
    turns = row.get("messages")
    return isinstance(row.get("context"), str) and isinstance(turns, list) and all(isinstance(t, dict) and "author" in t for t in turns)


def _is_ultrachat(row: Row) -> bool:
    said = row.get("data")
    return "id" in row and isinstance(said, list) and len(said) > 1 and all(isinstance(text, str) for text in said)


def _ultrachat(row: Row) -> dict[str, Any]:
    return {"messages": [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(row["data"])]}


FORMS = [
    Form(
        "UltraChat",
        "chat",
        _is_ultrachat,
        {"id": "1", "data": ["2+2?", "4"]},
        _ultrachat,
        lambda _row: ("data",),
        note="texts alternate between user and assistant",
    ),
    Form(
        "Gemini contents",
        "chat",
        lambda row: _are_turns(row.get("contents")),
        {
            "systemInstruction": {"parts": [{"text": "Be brief."}]},
            "contents": [{"role": "user", "parts": [{"text": "2+2?"}]}, {"role": "model", "parts": [{"text": "4"}]}],
        },
        _gemini,
        lambda row: [name for name in _GEMINI if name in row],
    ),
    Form(
        "PaLM chat",
        "chat",
        _is_bison,
        {"context": "Be brief.", "messages": [{"author": "user", "content": "2+2?"}, {"author": "bot", "content": "4"}]},
        lambda row: {"messages": row["messages"], "system": row["context"]},
        lambda _row: ("messages", "context"),
    ),
    Form(
        "Cohere chat",
        "prompt-completion",
        _is_cohere,
        {"preamble": "Be brief.", "chat_history": [{"role": "USER", "message": "hi"}], "message": "2+2?", "text": "4"},
        _cohere,
        lambda row: [name for name in _COHERE if name in row],
    ),
    Form(
        "history of LLaMA-Factory",
        "chat",
        lambda row: _has_history(row) and bool(row["history"]),
        {"instruction": "2+2?", "input": "", "output": "4", "system": "Be brief.", "history": [["hi", "hello"]]},
        _history,
        lambda row: [
            n for n in ("instruction", "prompt", "input", "query", "output", "response", "history", "system", "tools") if n in row
        ],
        note="rows with a history are chats: all answers are learned, those of the history too",
    ),
]
