"""Tool calls as people write them down, and as the templates that TRL ships take them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import trl

from tuneyard.data.canonical import Canonical
from tuneyard.data.chat import DEFAULT_TEMPLATE, ChatTemplate, render
from tuneyard.data.file_types import DataFile, FoundFile
from tuneyard.data.messages import BadSample
from tuneyard.data.records import Record, read_records
from tuneyard.data.roles import Chat, Pair, detect

ARGUMENTS = {"city": 'Pa"ris', "days": 3}
USER = {"role": "user", "content": "Will it rain?"}
ANSWER = {"role": "tool", "name": "weather", "tool_call_id": "abcdefghi", "content": "no rain"}
LAST = {"role": "assistant", "content": "It will not."}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}, "required": ["city"]},
    },
}
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TEMPLATES = sorted(Path(trl.__file__).parent.glob("chat_templates/*.jinja"))
WITH_TOOLS = [path for path in TEMPLATES if "tool_call" in path.read_text()]


def called(arguments: Any = ARGUMENTS, **more: Any) -> dict[str, Any]:
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [call], **more}


def sample_of(row: dict[str, Any]) -> Any:
    return Canonical(detect([row]))(row)


@pytest.mark.parametrize(
    "turn",
    [
        called(),
        called(json.dumps(ARGUMENTS)),
        called(content=None),
        {"role": "assistant", "tool_calls": [{"id": "abcdefghi", "name": "weather", "arguments": ARGUMENTS}]},
        {"role": "assistant", "tool_calls": json.dumps(called()["tool_calls"])},
        {"role": "assistant", "function_call": {"id": "abcdefghi", "name": "weather", "arguments": json.dumps(ARGUMENTS)}},
        {"from": "function_call", "value": json.dumps({"id": "abcdefghi", "name": "weather", "arguments": ARGUMENTS})},
    ],
)
def test_a_call_is_the_same_however_it_is_written(turn: dict[str, Any]) -> None:
    assert sample_of({"messages": [USER, turn]}) == Chat([USER, called()])


def test_sharegpt_calls_and_observes() -> None:
    turns = [("human", "q"), ("function_call", '{"name": "f", "arguments": {}}'), ("observation", "42"), ("gpt", "It is 42.")]
    found = sample_of({"conversations": [{"from": role, "value": value} for role, value in turns], "tools": json.dumps([TOOL])})
    assert [message["role"] for message in found.messages] == ["user", "assistant", "tool", "assistant"]
    assert found.messages[1]["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    assert found.tools == [TOOL]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"messages": [USER, called("{city: Paris}")]}, "messages[1].tool_calls[0]: arguments: not JSON: '{city: Paris}'"),
        ({"messages": [USER, called("[1]")]}, "messages[1].tool_calls[0]: arguments are list, not an object"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "messages[1].tool_calls[0] has no name"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": 5}]}, "messages[1].tool_calls is int, not a list of calls"),
        ({"messages": [USER, LAST], "tools": "weather"}, "tools: not JSON: 'weather'"),
        ({"messages": [USER, LAST], "tools": [5]}, "tools[0] is int, not an object"),
    ],
)
def test_what_is_no_call_is_a_bad_row(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadSample) as refused:
        sample_of(row)
    assert str(refused.value) == reason


def test_pairs_have_calls_tools_and_reasoning() -> None:
    thought = LAST | {"reasoning": "dry season"}
    pair = sample_of({"chosen": [USER, called(), ANSWER, LAST], "rejected": [USER, thought], "tools": [TOOL]})
    assert pair == Pair([USER], [called(), ANSWER, LAST], [LAST | {"reasoning_content": "dry season"}], [TOOL])


def test_columnar_files_leave_no_nulls_in_calls_and_tools(tmp_path: Path) -> None:
    """Arrow gives all calls the keys of all; what a row does not have is not what it says."""
    other = called({"mail": "a@example.com"})
    rows = [{"messages": [USER, called()], "tools": [TOOL]}, {"messages": [USER, other], "tools": []}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    file = DataFile(FoundFile(str(tmp_path / "a.parquet"), str(tmp_path / "a.parquet"), 1), "parquet")

    found = [record.values for record in read_records([file]) if isinstance(record, Record)]

    roles = detect(found)
    assert [Canonical(roles)(values) for values in found] == [Chat([USER, called()], [TOOL]), Chat([USER, other])]


def rendered(template: str, messages: list[Any], tools: list[Any] | None = None) -> str:
    chat = Chat(messages, tools)
    return render(chat, ChatTemplate(template, "the tokenizer's own", False, False), SPECIAL, need_spans=False).text


def rendered_or_refused(template: str, messages: list[Any], tools: list[Any]) -> tuple[str, str]:
    try:
        return rendered(template, messages, tools), ""
    except BadSample as refusal:
        return "", str(refusal)


@pytest.mark.parametrize("path", WITH_TOOLS, ids=lambda path: path.stem)
def test_each_template_writes_a_call_once_encoded_or_refuses_it_by_name(path: Path) -> None:
    template = path.read_text()
    text, refusal = rendered_or_refused(template, [USER, called()], [TOOL])
    if refusal:
        assert "the chat template (the tokenizer's own) leaves" in refusal
        return
    assert "weather" in text
    assert 'Pa\\\\\\"ris' not in text, "JSON within JSON"
    assert 'Pa"ris' in text or 'Pa\\"ris' in text
    assert "{'city'" not in text, "Python's text of a dict"


def test_enough_templates_take_tools() -> None:
    taken = []
    for path in WITH_TOOLS:
        if not rendered_or_refused(path.read_text(), [USER, called(), ANSWER, LAST], [TOOL])[1]:
            taken.append(path.stem)
    assert {"qwen2_5", "qwen3", "llama3_1", "glm4moe", "gptoss"} <= set(taken)


@pytest.mark.parametrize("name", ["deepseekv3", "deepseekv3_training"])
def test_a_template_that_joins_arguments_to_a_text_gets_json(name: str) -> None:
    template = next(path for path in TEMPLATES if path.stem == name).read_text()
    assert json.dumps(ARGUMENTS) in rendered(template, [USER, called()])


@pytest.mark.parametrize(
    ("messages", "tools", "lacking"), [([USER, called()], None, "tool calls"), ([USER, LAST], [TOOL], "tools"), ([USER, LAST], None, None)]
)
def test_a_template_without_tools_refuses_what_it_would_leave_out(messages: list[Any], tools: Any, lacking: str | None) -> None:
    if lacking is None:
        assert "It will not." in rendered(DEFAULT_TEMPLATE, messages, tools)
        return
    with pytest.raises(BadSample) as refused:
        rendered(DEFAULT_TEMPLATE, messages, tools)
    assert str(refused.value) == f"the chat template (the tokenizer's own) leaves {lacking} out"
    assert "data.chatTemplate" in refused.value.advice


@pytest.mark.parametrize("arguments", ['{"days": 1e400}', '{"days": NaN}', '{"range": [1, {"to": -Infinity}]}'])
def test_numbers_that_json_has_not_are_bad_rows(arguments: str) -> None:
    for form in (arguments, json.loads(arguments)):
        with pytest.raises(BadSample, match="a number that JSON does not allow"):
            sample_of({"messages": [USER, called(form)]})
