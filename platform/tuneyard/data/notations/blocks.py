"""Contents in blocks become text, tool calls, results of tools and thoughts. Each kind of block is one entry of `KINDS`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuneyard.data.bad_sample import TEXT_ALONE, BadSample

_TEXT_TYPES = (None, "text", "input_text", "output_text")
"""OpenAI's names of text parts; Arrow fills in None."""


@dataclass
class Blocks:
    """The parts of a content. `results`: pairs of the call's identity and the answer of the tool."""

    text: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)


Block = Mapping[str, Any]


def _call(name: Any, arguments: Any, identity: Any) -> dict[str, Any]:
    return {"id": identity, "function": {"name": name, "arguments": arguments if arguments is not None else {}}}


def _said(value: Any, where: str) -> str:
    """A result of a tool, or a thought, as text: a text, blocks of text, or any other value as JSON."""
    if isinstance(value, list):
        return "".join(_said(each.get("text", each.get("json")), where) if _is_text(each) else _said(each, where) for each in value)
    if isinstance(value, Mapping) and value.get("type") in ("image", "document", "image_url"):
        raise BadSample(f"{where} holds something other than text ({value['type']}); {TEXT_ALONE}")
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False, default=str)


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and (block.get("type") in _TEXT_TYPES) and ("text" in block or "json" in block)


def _thought(block: Block, where: str) -> str:
    value = block.get("thinking") or block.get("reasoning") or block.get("text") or block.get("summary")
    inner = block.get("reasoningContent")
    if isinstance(inner, Mapping):
        value = inner.get("reasoningText", inner)
        value = value.get("text") if isinstance(value, Mapping) else value
    return _said(value, where)


Read = Callable[[Block, Blocks, str], Any]
# One entry is one kind of block: what it is called (its type, or the key that holds it), and where its content goes.
KINDS: dict[str, Read] = {
    "tool_use": lambda b, to, _: to.calls.append(_call(b.get("name"), b.get("input"), b.get("id"))),
    "tool-call": lambda b, to, _: to.calls.append(_call(b.get("toolName"), b.get("args", b.get("input")), b.get("toolCallId"))),
    "toolUse": lambda b, to, _: to.calls.append(_call(b["toolUse"].get("name"), b["toolUse"].get("input"), b["toolUse"].get("toolUseId"))),
    "functionCall": lambda b, to, _: to.calls.append(_call(b["functionCall"].get("name"), b["functionCall"].get("args"), None)),
    "function_call": lambda b, to, _: to.calls.append(_call(b["function_call"].get("name"), b["function_call"].get("args"), None)),
    "tool_result": lambda b, to, at: to.results.append((str(b.get("tool_use_id") or ""), _said(b.get("content"), at))),
    "tool-result": lambda b, to, at: to.results.append((str(b.get("toolCallId") or ""), _said(b.get("result", b.get("output")), at))),
    "toolResult": lambda b, to, at: to.results.append(
        (str(b["toolResult"].get("toolUseId") or ""), _said(b["toolResult"].get("content"), at))
    ),
    "functionResponse": lambda b, to, at: to.results.append(("", _said(b["functionResponse"].get("response"), at))),
    "function_response": lambda b, to, at: to.results.append(("", _said(b["function_response"].get("response"), at))),
    "thinking": lambda b, to, at: to.thought.append(_thought(b, at)),
    "reasoning": lambda b, to, at: to.thought.append(_thought(b, at)),
    "reasoningContent": lambda b, to, at: to.thought.append(_thought(b, at)),
}


def blocks_of(content: list[Any], where: str) -> Blocks:
    """The parts of a content. Raises BadSample for a block that is neither text nor of a tool."""
    found = Blocks()
    for block in content:
        if isinstance(block, str):
            found.text.append(block)
            continue
        if not isinstance(block, Mapping):
            raise BadSample(f"{where} holds something other than text ({type(block).__name__}); {TEXT_ALONE}")
        kind = block.get("type") or next((name for name in KINDS if isinstance(block.get(name), Mapping)), None)
        if kind in KINDS:
            try:
                KINDS[kind](block, found, where)
            except (KeyError, AttributeError) as error:
                raise BadSample(f"{where}: a block of the type {kind} lacks its {kind}") from error
        elif kind not in _TEXT_TYPES or not isinstance(block.get("text"), str):
            raise BadSample(f"{where} holds something other than text ({_named(block, kind)}); {TEXT_ALONE}")
        elif block.get("thought") is True:  # Gemini's
            found.thought.append(block["text"])
        else:
            found.text.append(block["text"])
    return found


def _named(block: Block, kind: Any) -> str:
    return str(kind or ", ".join(name for name, value in block.items() if value is not None) or "an empty block")
