"""What reaches vLLM's server of a request, as the middleware passes it on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api.prompt_templates import prompt_template
from tuneyard.runtime.serve.middleware import CHATS, COMPLETIONS, FORMS, IDLE, Forms

Ask = Callable[..., Any]
KNOWN = {
    "tuned": {"template": "T", "ends": [7], "why_plain": "", "controls": r"<\|im_end\|>", "made_by": "{subject}: {body}"},
    "plain": {"template": "", "ends": [], "why_plain": "it was trained on plain prompts", "controls": "", "made_by": "alpaca"},
    "free": {"template": "", "ends": [], "why_plain": "it was trained on plain prompts", "controls": "", "made_by": ""},
}


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """The body that the server gets, or the status and message of a refusal."""
    (tmp_path / "forms.json").write_text(json.dumps(KNOWN))
    monkeypatch.setenv(FORMS, str(tmp_path / "forms.json"))

    def asked(path: str, body: Any, method: str = "POST") -> Any:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        reached: list[bytes] = []
        sent: list[dict[str, Any]] = []
        pieces = [content[:5], content[5:]]

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        async def send(message: Any) -> None:
            sent.append(dict(message))

        async def server(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - ASGI's signature
            if method == "POST":
                reached.append((await receive())["body"])
                assert dict(scope["headers"])[b"content-length"] == str(len(reached[0])).encode()
            else:
                reached.append(b'"passed"')

        scope = {"type": "http", "path": path, "method": method, "headers": [(b"content-length", b"1")]}
        asyncio.run(Forms(server)(scope, receive, send))
        if reached:
            return json.loads(reached[0]) if reached[0][:1] in b'{"[' else reached[0]
        return sent[0]["status"], json.loads(sent[1]["body"])["error"]["message"]

    return asked


def test_a_chat_gets_the_template_and_the_end_tokens_of_its_model(ask: Ask) -> None:
    expected = {"model": "tuned", "messages": [], "chat_template": "T", "stop_token_ids": [7]}
    assert ask(CHATS, {"model": "tuned", "messages": []}) == expected
    assert ask(CHATS, {"messages": []}) == expected, "the first model answers requests that name none"
    assert ask(CHATS, {"model": "tuned", "stop_token_ids": [3, 7]})["stop_token_ids"] == [3, 7]


def test_chats_of_a_plain_model_are_refused_with_the_way_to_ask(ask: Ask) -> None:
    status, why = ask(CHATS, {"model": "plain", "messages": []})
    assert status == 400
    assert why == f"plain takes no chats: it was trained on plain prompts. Send the prompt to {COMPLETIONS}"
    assert ask(COMPLETIONS, {"model": "plain", "prompt": "x"}) == {"model": "plain", "prompt": "x"}


def test_columns_become_the_prompt_of_the_training(ask: Ask) -> None:
    columns = {"subject": "Refund", "body": "Where is {it}?"}
    assert ask(COMPLETIONS, {"prompt": "", "columns": columns}) == {"model": "tuned", "prompt": "Refund: Where is {it}?"}
    chat = ask(CHATS, {"messages": [], "columns": columns})
    assert (chat["messages"], chat["chat_template"]) == ([{"role": "user", "content": "Refund: Where is {it}?"}], "T")
    assert "columns" not in chat
    bare, full = ({"prompt": "Add.", "input": given} for given in ("", "1 2"))
    for given in (bare, full, {"prompt": "Add."}):
        expected = prompt_template("alpaca").filled({"input": "", **given})
        assert ask(COMPLETIONS, {"model": "plain", "columns": given})["prompt"] == expected


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (COMPLETIONS, {"columns": {"subject": "a"}}, "columns of tuned is an object with a text for each of subject, body"),
        (COMPLETIONS, {"columns": {"subject": "a", "body": "b", "input": "c"}}, "is an object with a text for each"),
        (COMPLETIONS, {"columns": {"subject": "a", "body": 1}}, "is an object with a text for each"),
        (COMPLETIONS, {"columns": ["a"]}, "is an object with a text for each"),
        (COMPLETIONS, {"columns": {}, "prompt": "x"}, "a request has columns or prompt, and not both"),
        (CHATS, {"columns": {}, "messages": [{}]}, "a request has columns or messages, and not both"),
        (CHATS, {"columns": {"subject": "<|im_end|>", "body": ""}}, "spells the control token"),
        (COMPLETIONS, {"model": "free", "columns": {}}, "free was trained without data.template"),
    ],
)
def test_columns_that_make_no_prompt_are_refused(path: str, body: dict[str, Any], why: str, ask: Ask) -> None:
    status, said = ask(path, body)
    assert status == 400
    assert why in said


@pytest.mark.parametrize("unnamed", ["", None])
def test_an_empty_name_is_the_first_model_and_not_the_base(unnamed: str | None, ask: Ask) -> None:
    assert ask(CHATS, {"model": unnamed, "messages": []})["model"] == "tuned"
    assert ask(COMPLETIONS, {"model": unnamed, "prompt": "x"})["model"] == "tuned"
    assert ask(CHATS, {"model": unnamed, "messages": [], "chat_template": "{{ 1 }}"})[0] == 400


def test_it_tells_for_how_long_nobody_has_asked_and_a_look_at_its_health_is_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forms.json").write_text(json.dumps(KNOWN))
    monkeypatch.setenv(FORMS, str(tmp_path / "forms.json"))
    now = 100.0
    monkeypatch.setattr("tuneyard.runtime.serve.middleware.time.monotonic", lambda: now)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"model": "plain", "prompt": "x"}'}

    async def run() -> list[float]:
        nonlocal now
        told: list[float] = []

        async def send(message: Any) -> None:
            told.extend(float(value) for name, value in message.get("headers", ()) if name == IDLE.encode())

        async def server(scope: Any, receive: Any, send: Any) -> None:
            nonlocal now
            if scope["path"] == COMPLETIONS:
                now += 30  # an answer takes its time, and the server is asked for its health meanwhile
                await look(receive, send)
                raise ConnectionError("the client has gone")
            await send({"type": "http.response.start", "status": 200, "headers": []})

        async def look(receive: Any, send: Any) -> None:
            await forms({"type": "http", "path": "/health", "method": "GET", "headers": []}, receive, send)

        forms = Forms(server)
        now += 5
        await look(receive, send)
        with pytest.raises(ConnectionError):
            await forms({"type": "http", "path": COMPLETIONS, "method": "POST", "headers": []}, receive, send)
        now += 2
        await look(receive, send)
        return told

    assert asyncio.run(run()) == [5.0, 0.0, 2.0]


def test_a_request_without_the_key_is_refused_before_its_body_is_read_and_keeps_no_server_awake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forms.json").write_text(json.dumps(KNOWN))
    monkeypatch.setenv(FORMS, str(tmp_path / "forms.json"))
    monkeypatch.setenv("VLLM_API_KEY", "sk-right")
    now = 100.0
    monkeypatch.setattr("tuneyard.runtime.serve.middleware.time.monotonic", lambda: now)
    sent: list[dict[str, Any]] = []
    reached: list[str] = []

    async def unread() -> dict[str, Any]:
        raise AssertionError("the body is read")

    async def read() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"model": "tuned", "messages": []}'}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def server(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001 - ASGI's signature
        reached.append(scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def run() -> None:
        nonlocal now
        forms = Forms(server)
        now += 5
        for given in ([], [b"sk-right"], [b"Bearer sk-wrong"], [b"Bearer"], [b"Basic sk-right"]):
            headers = [(b"authorization", value) for value in given]
            await forms({"type": "http", "path": CHATS, "method": "POST", "headers": headers}, unread, send)
            assert sent[-2]["status"] == 401
            assert "Authorization: Bearer" in json.loads(sent[-1]["body"])["error"]["message"]
        await forms({"type": "http", "path": "/health", "method": "POST", "headers": []}, unread, send)
        assert (IDLE.encode(), b"5.0") in sent[-1]["headers"]
        await forms({"type": "http", "path": CHATS, "method": "POST", "headers": [(b"authorization", b"bearer sk-right")]}, read, send)

    asyncio.run(run())
    assert reached == ["/health", CHATS]


def test_a_body_beyond_the_limit_is_refused_with_its_reason(ask: Ask) -> None:
    assert ask(COMPLETIONS, b'"' + b"x" * 64 * 1024**2 + b'"') == (413, "a request has at most 64 MiB")


def test_a_text_of_a_user_ends_no_turn(ask: Ask) -> None:
    def chat(role: str, content: Any) -> Any:
        return ask(CHATS, {"model": "tuned", "messages": [{"role": role, "content": content}]})

    for content in ("a<|im_end|>b", [{"type": "text", "text": "<|im_end|>"}]):
        assert chat("user", content) == (400, "a text spells the control token <|im_end|>, which would end a turn: take it out")
    assert chat("assistant", "a<|im_end|>b")["model"] == "tuned"
    assert ask(CHATS, {"model": "tuned", "messages": [], "tools": [{"function": {"description": "<|im_end|>"}}]})[0] == 400


def test_a_request_brings_no_template_of_its_own(ask: Ask) -> None:
    assert ask(CHATS, {"model": "tuned", "chat_template": "{{ 1 }}"})[0] == 400
    assert ask(CHATS, {"model": "tuned", "chat_template_kwargs": {"chat_template": "{{ 1 }}"}})[0] == 400


def test_what_the_server_refuses_itself_reaches_it(ask: Ask) -> None:
    assert ask(CHATS, {"model": "unknown"}) == {"model": "unknown"}
    assert ask(CHATS, [1]) == [1]
    assert ask(CHATS, b"no JSON at all") == b"no JSON at all"
    assert ask(CHATS, {"model": ["tuned"]}) == {"model": ["tuned"]}


def test_other_paths_are_closed(ask: Ask) -> None:
    for path in ("/invocations", "/v1/load_lora_adapter", "/tokenize", "/v1/responses", "/v1/chat/completions/"):
        assert ask(path, {"model": "tuned"})[0] == 404
    assert ask("/health", b"", "GET") == "passed"
