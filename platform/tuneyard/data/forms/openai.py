"""OpenAI: batches, preferences, Evals, Responses; and the answers alone that a batch of any API returns."""

from __future__ import annotations

from typing import Any

from tuneyard.data.forms.form import Form, Row, by_paths
from tuneyard.data.meaning.paths import structured, value_at
from tuneyard.data.notations.turns import looks_like_turn

_TURN = {"role": "user", "content": "2+2?"}
_ANSWER = {"role": "assistant", "content": "4"}


def _is_batch_output(row: Row) -> bool:
    answers = ("response.body.choices", "response.body.output", "result.message.content", "response.candidates")
    return "custom_id" in row and any(value_at(row, path) for path in answers)


def _is_responses(row: Row) -> bool:
    output: Any = row.get("output")
    items = isinstance(output, list) and bool(output) and all(isinstance(item, dict) and "type" in item for item in output)
    return items and bool(row.get("input")) and all(map(looks_like_turn, output))


def _responses(row: Row) -> dict[str, Any]:
    asked, system = row["input"], row.get("instructions")
    before = [{"role": "system", "content": system}] if system else []
    turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    return {"prompt": [*before, *turns], "completion": row["output"], "tools": row.get("tools")}


def _xlam(row: Row) -> dict[str, Any]:
    calls = {"role": "assistant", "content": None, "tool_calls": structured(row["answers"])}
    return {"messages": [{"role": "user", "content": row["query"]}, calls], "tools": row["tools"]}


FORMS = [
    Form(
        "batch output",
        "chat",
        _is_batch_output,
        {"custom_id": "r1", "response": {"body": {"choices": [{"message": _ANSWER}]}}},
        refusal=(
            "rows hold answers without their questions: the output of a batch",
            "join them with the input of the batch by custom_id, one row with messages for each",
        ),
    ),
    by_paths(
        "OpenAI batch input",
        "chat",
        {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", "messages": [_TURN]}},
        messages="body.messages",
        tools="body.tools",
    ),
    by_paths(
        "OpenAI preferences",
        "preference",
        {"input": {"messages": [_TURN], "tools": []}, "preferred_output": [_ANSWER], "non_preferred_output": [_ANSWER | {"content": "5"}]},
        prompt="input.messages",
        tools="input.tools",
        chosen="preferred_output",
        rejected="non_preferred_output",
    ),
    Form(
        "OpenAI Responses",
        "prompt-completion",
        _is_responses,
        {"instructions": "Be brief.", "input": "2+2?", "output": [{"type": "message", **_ANSWER}]},
        _responses,
        lambda row: [name for name in ("instructions", "input", "output", "tools") if name in row],
    ),
    by_paths(
        "OpenAI stored completions",
        "prompt-completion",
        {"messages": [_TURN], "choices": [{"message": _ANSWER}]},
        prompt="messages",
        completion="choices[0].message",
        tools="tools",
    ),
    Form(
        "xLAM function calls",
        "chat",
        lambda row: isinstance(row.get("query"), str) and "tools" in row and isinstance(structured(row.get("answers")), list),
        {"query": "Rain in Graz?", "tools": [{"name": "rain"}], "answers": [{"name": "rain", "arguments": {"city": "Graz"}}]},
        _xlam,
        lambda _row: ("query", "tools", "answers"),
    ),
    by_paths("OpenAI Evals", "prompt-completion", {"input": [_TURN], "ideal": "4"}, prompt="input", completion="ideal"),
]
