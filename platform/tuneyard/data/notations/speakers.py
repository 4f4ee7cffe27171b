"""Who speaks: the usual roles, and other names for them. One entry is one name."""

from __future__ import annotations

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
