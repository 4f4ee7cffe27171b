"""What an endpoint sends is read without trust: answers, errors in many forms, and nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.scoring.endpoint.reply import Answered, Refused, RowRefused, TryAgain, read_reply
from tuneyard.scoring.rows import Paid

HTML = b"<html><head><style>p{color:red}</style></head><body><h1>502 Bad&nbsp;Gateway</h1><p>nginx</p></body></html>"


def _answer(**changes: Any) -> bytes:
    message = {"role": "assistant", "content": "yes", **changes.pop("message", {})}
    choice = {"index": 0, "message": message, "finish_reason": "stop", **changes.pop("choice", {})}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}, **changes}).encode()


def _error(message: str = "no", **more: Any) -> bytes:
    return json.dumps({"error": {"message": message, **more}}).encode()


def test_an_answer_with_its_tokens() -> None:
    assert read_reply(200, {}, _answer()) == Answered("yes", "stop", 7, 2, Paid(7, 2))


def test_an_answer_of_completions() -> None:
    body = json.dumps({"choices": [{"text": " yes", "finish_reason": "length"}], "usage": None}).encode()
    assert read_reply(200, {}, body) == Answered(" yes", "length", None, 0, Paid(unknown=1))


def test_half_of_a_surrogate_pair_becomes_a_replacement() -> None:
    body = _answer(message={"content": "MARK"}).replace(b"MARK", b"a\\ud83d b \\ud83d\\ude00")
    reply = read_reply(200, {}, body)
    assert isinstance(reply, Answered)
    assert reply.text == "a\ufffd b \U0001f600"


@pytest.mark.parametrize(
    "usage", [{}, [], "7", {"prompt_tokens": -1, "completion_tokens": 2}, {"prompt_tokens": 1e400}, {"prompt_tokens": True}]
)
def test_counts_that_are_none_are_unknown(usage: Any) -> None:
    reply = read_reply(200, {}, _answer(usage=usage))
    assert isinstance(reply, Answered)
    assert reply.paid.unknown == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [7]}',
        b'{"choices": {"0": 1}}',
        b'{"choices": [{"message": {"content": 7}}]}',
        b'{"choices": [{"message": null}]}',
        b"\xff\xfe\x00",
        b"[" * 100_000,
        HTML,
        _answer()[:-20],
    ],
)
def test_a_reply_that_is_no_answer_is_asked_for_again(body: bytes) -> None:
    assert isinstance(read_reply(200, {}, body), TryAgain)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"message": {"content": None, "refusal": "I will not"}}, "the model refuses it: I will not"),
        ({"choice": {"finish_reason": "content_filter"}}, "filtered"),
        ({"message": {"content": None, "tool_calls": [{"id": "1"}]}}, "calls a tool"),
    ],
)
def test_a_row_without_an_answer(changes: dict[str, Any], reason: str) -> None:
    reply = read_reply(200, {}, _answer(**changes))
    assert isinstance(reply, RowRefused)
    assert reason in reply.reason
    assert reply.paid == Paid(7, 2)


def test_reasoning_that_took_all_tokens_is_an_empty_answer_that_was_cut_off() -> None:
    reply = read_reply(200, {}, _answer(message={"content": None}, choice={"finish_reason": "length"}))
    assert reply == Answered("", "length", 7, 2, Paid(7, 2))


@pytest.mark.parametrize(
    ("status", "body", "kind", "for_load"),
    [
        (400, _error(), RowRefused, None),
        (413, b"", RowRefused, None),
        (401, _error(), Refused, None),
        (404, _error("model not found"), Refused, None),
        (301, b"", Refused, None),
        (429, _error(), TryAgain, True),
        (429, _error(code="insufficient_quota"), Refused, None),
        (500, b"oops", TryAgain, False),
        (502, HTML, TryAgain, True),
        (503, b"", TryAgain, True),
        (529, b"", TryAgain, True),
        (408, b"", TryAgain, False),
        (204, b"", TryAgain, False),
    ],
)
def test_statuses(status: int, body: bytes, kind: type, for_load: bool | None) -> None:
    reply = read_reply(status, {}, body)
    assert isinstance(reply, kind)
    assert getattr(reply, "for_load", None) is for_load


def test_an_html_page_is_read_as_its_text() -> None:
    reply = read_reply(502, {}, HTML)
    assert isinstance(reply, TryAgain)
    assert reply.reason == "HTTP 502: 502 Bad&nbsp;Gateway nginx"


def test_an_error_fits_in_one_line_and_holds_no_control_characters() -> None:
    reply = read_reply(400, {}, _error("a\x1b[31m\n\u202eb" + "x" * 10_000))
    assert isinstance(reply, RowRefused)
    assert reply.reason.isprintable()
    assert len(reply.reason) < 400


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "20"}, 20.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25),
        ({"Retry-After": "Fri, 27 Nov 2026 10:00:30 GMT", "Date": "Fri, 27 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"Retry-After": "Fri, 27 Nov 2026 10:00:30 GMT"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "inf"}, None),
        ({"Retry-After": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    reply = read_reply(429, headers, b"")
    assert isinstance(reply, TryAgain)
    assert reply.retry_after_s == seconds


@given(status=st.integers(100, 599), body=st.binary(max_size=300), after=st.text(max_size=20))
def test_any_bytes_are_read(status: int, body: bytes, after: str) -> None:
    read_reply(status, {"Retry-After": after}, body)


@given(
    values=st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["choices", "message", "content", "usage", "text", "finish_reason", "error"]), inner, max_size=4
            )
        ),
    )
)
def test_any_json_is_read(values: Any) -> None:
    for status in (200, 400, 429):
        read_reply(status, {}, json.dumps(values).encode())


THINKING = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}


@pytest.mark.parametrize(
    ("message", "text", "reasoning"),
    [
        ({"content": "yes", "reasoning_content": "Hm."}, "yes", "Hm."),
        ({"content": "yes", "reasoning": "Hm."}, "yes", "Hm."),
        ({"content": None, "reasoning_content": "Hm."}, "", "Hm."),
        ({"content": [THINKING, {"type": "text", "text": "yes"}]}, "yes", "Hm."),
        ({"content": [THINKING]}, "", "Hm."),
        ({"content": [{"type": "output_text", "output_text": "no", "text": "yes"}]}, "yes", None),
        ({"content": "yes", "reasoning_content": 7, "reasoning": ["x"]}, "yes", None),
    ],
)
def test_thoughts_that_a_server_tells_apart(message: dict[str, Any], text: str, reasoning: str | None) -> None:
    reply = read_reply(200, {}, _answer(message=message))
    assert isinstance(reply, Answered)
    assert (reply.text, reply.reasoning) == (text, reasoning)


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ({"content": [THINKING], "tool_calls": [{"id": "1"}]}, "the model calls a tool"),
        ({"content": [], "tool_calls": [{"id": "1"}]}, "the model calls a tool"),
        ({"content": [{"type": "refusal", "refusal": "I will not"}]}, "the model refuses it: I will not"),
    ],
)
def test_parts_without_text_are_no_empty_answers(message: dict[str, Any], says: str) -> None:
    reply = read_reply(200, {}, _answer(message=message))
    assert isinstance(reply, RowRefused)
    assert says in reply.reason


def test_a_message_that_is_no_object_is_ignored_beside_a_text() -> None:
    reply = read_reply(200, {}, json.dumps({"choices": [{"text": "hi", "message": "ok", "finish_reason": "stop"}]}).encode())
    assert isinstance(reply, Answered)
    assert reply.text == "hi"


@pytest.mark.parametrize(("stop_reason", "expected"), [("\n", True), (None, False), (151645, False)])
def test_a_server_of_vllm_tells_that_a_stop_text_ended_the_answer(stop_reason: Any, expected: bool) -> None:
    reply = read_reply(200, {}, _answer(choice={"stop_reason": stop_reason}))
    assert isinstance(reply, Answered)
    assert reply.by_stop_text is expected
