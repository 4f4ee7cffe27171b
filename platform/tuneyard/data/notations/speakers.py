"""Who speaks: the usual roles, and other names for them. One entry is one name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

ROLES = ("system", "developer", "user", "assistant", "tool")
"""Roles that every template is expected to know. Any other role must stand in the template itself."""
ALIASES = {
    "human": "user",
    "prompter": "user",
    "humanmessage": "user",
    "gpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "chatgpt": "assistant",
    "chatbot": "assistant",
    "ai": "assistant",
    "aimessage": "assistant",
    "aimessagechunk": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "claude": "assistant",
    "gemini": "assistant",
    "systemmessage": "system",
    "function": "tool",
    "observation": "tool",
    "tool_response": "tool",
    "function_response": "tool",
    "toolmessage": "tool",
    "functionmessage": "tool",
}
CALL_ROLES = ("function_call", "tool_call")
"""ShareGPT's roles of an assistant turn that consists of a call, as JSON text."""


def with_strangers(given: Mapping[str, str], strangers: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Speaker -> role: `given`, and a proposal for each speaker without a role. `taken`: roles that the chats have by themselves."""
    roles = {name.lower(): role for name, role in given.items()}
    for name in strangers:
        roles[name] = next((role for role in ("user", "assistant") if role not in (*roles.values(), *taken)), "user")
    return roles
