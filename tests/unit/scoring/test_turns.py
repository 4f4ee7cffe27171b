"""Prompts of several turns, from the rows of a file to what vLLM gets, and to what an endpoint is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import write_tokenizer
from tests.servers.openai_server import KEY, MODEL, OpenAIServer
from tests.unit.scoring.scored_by_hand import write_rows

from tuneyard.api import Endpoint, Generation, ScoreTask
from tuneyard.data import ScoreRows
from tuneyard.scoring.endpoint.engine import EndpointEngine
from tuneyard.scoring.endpoint.prompts import EndpointPrompts
from tuneyard.scoring.exchange import Generate
from tuneyard.scoring.open_part import OpenPart
from tuneyard.scoring.prompts import PromptEncoder

TURNS = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "the cat"},
    {"role": "assistant", "content": "sat"},
    {"role": "user", "content": "where?"},
]
ANSWERED = [*TURNS, {"role": "assistant", "content": "on a mat"}]
ENDS = "the prompt ends with a turn of the assistant: move the answer to the reference column"
ROWS: list[dict[str, Any]] = [
    {"prompt": TURNS},
    {"prompt": TURNS[1:], "system": "be long"},
    {"prompt": ANSWERED},
    {"prompt": TURNS, "system": "not this one"},
]


def part(folder: Path) -> OpenPart:
    task = ScoreTask.model_validate({"model": {"name": "m"}, "data": {"source": str(write_rows(folder / "rows.jsonl", ROWS))}})
    rows = ScoreRows.open(task.data)
    return OpenPart(rows.read(0, rows.count()), task)


def test_vllm_gets_all_turns_as_the_template_renders_them(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path)
    talks = part(tmp_path)

    asked = talks.requests(PromptEncoder(tokenizer, chat=None, max_length=256))

    rest = "<|user|>the cat<|end|><|assistant|>sat<|end|><|user|>where?<|end|><|assistant|>"
    texts = {each.key[1]: tokenizer.decode(each.prompt) for each in asked if isinstance(each, Generate)}
    assert texts == {
        0: f"<|system|>be brief<|end|>{rest}",
        1: f"<|system|>be long<|end|>{rest}",
        3: f"<|system|>be brief<|end|>{rest}",
    }
    assert [row.error for row in talks.scored] == [None, None, ENDS, None]


@pytest.mark.parametrize("chat", [None, False], ids=["chats", "plain"])
def test_an_endpoint_is_sent_all_turns_in_their_order(tmp_path: Path, chat: bool | None) -> None:
    talks = part(tmp_path)

    asked = talks.requests(EndpointPrompts(chat=chat))
    with OpenAIServer() as server:
        endpoint = Endpoint.model_validate({"url": server.url, "model": MODEL, "atOnce": 1})
        answers = list(EndpointEngine(endpoint, Generation(), key=KEY).run(iter(asked)))

    if chat is False:
        plain = "the prompt is a list of messages, and data.chat is false"
        assert {row.error for row in talks.scored} == {plain}
        return
    long = {"role": "system", "content": "be long"}
    assert [body["messages"] for body in server.asked] == [TURNS, [long, *TURNS[1:]], TURNS]
    assert [answer.text for answer in answers] == ["answer to where?"] * 3
    assert [row.error for row in talks.scored] == [None, None, ENDS, None]
