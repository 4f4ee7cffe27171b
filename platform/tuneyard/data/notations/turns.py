"""Lists of turns in any notation become messages with OpenAI's keys: role, content, tool_calls, tool_call_id, reasoning_content."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tuneyard.data.bad_sample import BadSample
from tuneyard.data.notations.blocks import blocks_of

Turn = dict[str, Any]
SPEAKER_KEYS = ("role", "from", "speaker", "author", "sender", "message.role")
CONTENT_KEYS = ("content", "value", "text", "message", "utterance", "parts", "message.content")
PAIR_KEYS = (
    *(("human", "assistant"), ("user", "assistant"), ("human", "gpt"), ("user", "bot"), ("input", "output")),
    *(("question", "answer"), ("prompt", "response"), ("query", "response"), ("instruction", "output")),
)
"""Keys of an object that holds a question and its answer."""
_LANGCHAIN = ("human", "ai", "system", "tool", "function", "humanmessage", "aimessage", "systemmessage", "toolmessage", "aimessagechunk")
_ITEMS = ("function_call", "function_call_output", "reasoning")
"""Items of OpenAI's Responses that are no messages."""


def looks_like_turn(item: Any) -> bool:
    if isinstance(item, Mapping):
        return any(isinstance(item.get(key), str) for key in SPEAKER_KEYS) or _inner(item) is not None or _pair(item) is not None
    return _is_pair_of_texts(item)


def plain_turns(item: Any, where: str) -> Iterator[Turn]:
    """The messages in an item of a list of turns. Raises BadSample where it is none."""
    if isinstance(item, dict):  # the two common notations first: there is one call for each turn of a data set
        if isinstance(item.get("content"), str) and "role" in item:
            yield item
            return
        if isinstance(item.get("from"), str) and isinstance(item.get("value"), str) and "role" not in item and item["from"].strip():
            yield {**item, "role": item["from"], "content": item["value"]}
            return
    if _is_pair_of_texts(item):
        yield from _of_pair(*item)
        return
    if not isinstance(item, Mapping):
        raise BadSample(f"{where} is {type(item).__name__}, not a message")
    if (pair := _pair(item)) is not None:
        yield from _of_pair(*pair)
        return
    yield from _spread(_with_usual_keys(_inner(item) or item, where), where)


def _with_usual_keys(item: Mapping[str, Any], where: str) -> Turn:
    if item.get("type") in _ITEMS and "role" not in item:
        return _of_item(item)
    speaker = next((key for key in SPEAKER_KEYS if item.get(key) is not None), None)
    if speaker is None:
        others = [str(key) for key in item if key not in CONTENT_KEYS]
        raise BadSample(f"{where} has no role" + (f"; its parts are {', '.join(map(str, item))}" if others else ""))
    if not isinstance(item[speaker], str) or not item[speaker].strip():
        raise BadSample(f"{where} has no role")
    content = next((key for key in CONTENT_KEYS if item.get(key) is not None and key != speaker), None)
    return {**item, "role": item[speaker], "content": item[content] if content else None}


def _of_item(item: Mapping[str, Any]) -> Turn:
    """A call, the answer to one, or a thought: items of OpenAI's Responses beside messages."""
    if item["type"] == "function_call":
        call = {"id": item.get("call_id"), "function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if item["type"] == "function_call_output":
        return {"role": "tool", "content": item.get("output"), "tool_call_id": item.get("call_id")}
    summary = item.get("summary") or item.get("content") or []
    thought = "\n".join(str(each.get("text", "")) for each in summary if isinstance(each, Mapping))
    return {"role": "assistant", "content": None, "reasoning_content": thought, "thought alone": True}


def _spread(turn: Turn, where: str) -> Iterator[Turn]:
    """A message whose content is a list of blocks, as the messages that it stands for: first the answers of tools, then the rest."""
    content = turn.get("content")
    if isinstance(content, Mapping):
        content = [content]
    if not isinstance(content, list):
        yield turn
        return
    found = blocks_of(content, where)
    for identity, answer in found.results:
        yield {"role": "tool", "content": answer, **({"tool_call_id": identity} if identity else {})}
    if found.results and not found.text and not found.calls:
        return
    text = "".join(found.text) if found.text or not found.calls else None
    more: Turn = {"tool_calls": found.calls} if found.calls else {}
    if found.thought and not turn.get("reasoning_content"):
        more["reasoning_content"] = "\n".join(found.thought)
    yield {**turn, "content": text, **more}


def joined_thoughts(turns: list[Turn]) -> list[Turn]:
    """The turns, with each thought that stands alone put into the turn of the assistant that follows."""
    joined: list[Turn] = []
    for turn in turns:
        before = joined[-1] if joined else {}
        if before.get("thought alone") and str(turn.get("role", "")).lower() == "assistant":
            thought = before["reasoning_content"]
            joined[-1] = {**turn, **({"reasoning_content": thought} if thought and not turn.get("reasoning_content") else {})}
        else:
            joined.append(turn)
    return [turn for turn in joined if not turn.get("thought alone")]


def _inner(item: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A message of LangChain, or an item of OpenAI's Responses, as an object with a role; None for others."""
    if item.get("type") == "constructor" and isinstance(item.get("kwargs"), Mapping) and isinstance(item.get("id"), list) and item["id"]:
        return {**item["kwargs"], "role": str(item["id"][-1])}
    kind = str(item.get("type", "")).lower()
    if kind in _LANGCHAIN and "role" not in item:
        data = item.get("data")
        return {**(data if isinstance(data, Mapping) else item), "role": kind}
    return item if item.get("type") in _ITEMS else None


def _pair(item: Mapping[str, Any]) -> tuple[Any, Any] | None:
    if any(isinstance(item.get(key), str) for key in SPEAKER_KEYS):
        return None
    keys = next((keys for keys in PAIR_KEYS if all(isinstance(item.get(key), str) for key in keys)), None)
    return (item[keys[0]], item[keys[1]]) if keys else None


def _is_pair_of_texts(item: Any) -> bool:
    return isinstance(item, (list, tuple)) and len(item) == 2 and all(isinstance(each, str) for each in item)


def _of_pair(asked: str, answered: str) -> Iterator[Turn]:
    yield {"role": "user", "content": asked}
    yield {"role": "assistant", "content": answered}
