"""The client of an endpoint against a real server with planted faults. Minutes pass in milliseconds: the clock is handed in."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.servers.openai_server import KEY, MODEL, Fault, OpenAIServer, completion, error_json, no_fault, prompt_of

from tuneyard.api import Endpoint, FailureKind, Generation, JobFailed
from tuneyard.scoring.endpoint.engine import EndpointEngine
from tuneyard.scoring.endpoint.request import ChatPrompt
from tuneyard.scoring.exchange import Answer, Asked, Generate


@dataclass
class FastClock:
    """A clock on which `factor` seconds pass in one."""

    factor: float = 1000.0

    def now(self) -> float:
        return time.monotonic() * self.factor

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.factor)


def _requests(count: int, *, chat: bool = True) -> Iterator[Asked | None]:
    for row in range(count):
        text = f"row {row}"
        yield Generate(row, ChatPrompt([{"role": "user", "content": text}]) if chat else text)


def _ask(
    server: OpenAIServer, count: int = 8, *, clock: FastClock | None = None, generation: dict[str, Any] | None = None, **fields: Any
) -> dict[int, Answer]:
    """Answers by row. The patience is long: on a busy machine a fast clock may skip an hour."""
    endpoint = Endpoint.model_validate({"url": server.url, "model": MODEL, "patience": "20h", **fields})
    engine = EndpointEngine(endpoint, Generation.model_validate(generation or {}), key=KEY, clock=clock or FastClock())
    return {answer.key: answer for answer in engine.run(_requests(count))}


def _texts(answers: dict[int, Answer]) -> dict[int, str | None]:
    return {row: answer.text for row, answer in answers.items()}


def _all(count: int) -> dict[int, str]:
    return {row: f"answer to row {row}" for row in range(count)}


def test_rows_are_answered_and_tokens_counted() -> None:
    with OpenAIServer() as server:
        answers = _ask(server, generation={"maxTokens": 9, "stop": ["END"]})
    assert _texts(answers) == _all(8)
    assert (answers[3].input_tokens, answers[3].output_tokens, answers[3].finish_reason) == (2, 4, "stop")
    assert answers[3].paid is not None
    assert answers[3].paid.input_tokens == 2
    assert {(body["model"], body["max_tokens"], body["temperature"], tuple(body["stop"])) for body in server.asked} == {
        (MODEL, 9, 0.0, ("END",))
    }
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}


def test_no_more_requests_than_asked_for_are_in_flight() -> None:
    slow = Fault(200, json.dumps(completion({}, "yes")), hang_s=0.02)
    with OpenAIServer(lambda _, __: slow) as server:
        _ask(server, 60, atOnce=5)
    assert server.most_at_once == 5


def test_ten_minutes_of_429_are_outlasted_without_a_storm_of_requests() -> None:
    clock = FastClock()
    began = clock.now()

    def for_ten_minutes(_: dict[str, Any], __: int) -> Fault | None:
        return Fault(429, error_json("slow down", "rate_limit_exceeded")) if clock.now() - began < 600 else None

    with OpenAIServer(for_ten_minutes) as server:
        assert _texts(_ask(server, 40, clock=clock, atOnce=8)) == _all(40)
    assert len(server.asked) < 40 + 8 + 20


def test_longer_than_the_patience_ends_the_task_with_the_cause() -> None:
    with OpenAIServer(lambda _, __: Fault(429, error_json("slow down"))) as server, pytest.raises(JobFailed) as failed:
        _ask(server, patience="5m")
    assert failed.value.kind is FailureKind.NETWORK
    assert "nothing but: HTTP 429: slow down" in failed.value.cause
    assert "--resume" in failed.value.next_step


def test_a_pause_of_a_year_ends_the_task_at_once() -> None:
    refusal = Fault(429, error_json("later"), {"Retry-After": str(365 * 86400)})
    with OpenAIServer(lambda _, __: refusal) as server, pytest.raises(JobFailed, match="wait for 365 days"):
        _ask(server, atOnce=4)
    assert len(server.asked) <= 4


def test_the_endpoints_own_pause_is_kept() -> None:
    clock = FastClock()
    times: list[float] = []

    def once(_: dict[str, Any], number: int) -> Fault | None:
        times.append(clock.now())
        return Fault(429, headers={"Retry-After": "300"}) if number == 0 else None

    with OpenAIServer(once) as server:
        assert _texts(_ask(server, 3, clock=clock, atOnce=1)) == _all(3)
    assert times[1] - times[0] >= 300


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, "oops"),
        Fault(200, "<html>busy</html>"),
        Fault(200, '{"choices": []}'),
        Fault(200, json.dumps({"choices": [{"message": {"content": "x" * 1000}}]}), cut=True),
        Fault(reset=True),
        Fault(200, '{"choices": [', drip_s=0.2),
        Fault(200, "late", hang_s=2),
    ],
    ids=["500", "html", "no choices", "cut", "reset", "slow loris", "late"],
)
def test_a_failure_is_tried_again(fault: Fault) -> None:
    """The first request of each row fails."""
    seen: set[str] = set()

    def first(body: dict[str, Any], _: int) -> Fault | None:
        fresh = prompt_of(body) not in seen
        seen.add(prompt_of(body))
        return fault if fresh else None

    with OpenAIServer(first) as server:
        assert _texts(_ask(server, 6, timeout=1)) == _all(6)
    assert min(server.prompts().values()) == 2


@pytest.mark.parametrize("fault", [Fault(500, "oops"), Fault(reset=True), Fault(200, "nonsense")], ids=["500", "reset", "nonsense"])
def test_a_row_that_fails_each_time_is_an_error_of_that_row(fault: Fault) -> None:
    with OpenAIServer(lambda body, _: fault if prompt_of(body) == "row 3" else None) as server:
        answers = _ask(server)
    assert answers[3].error is not None
    assert "tries failed; the last one" in answers[3].error
    assert _texts({row: answer for row, answer in answers.items() if row != 3}) == {row: text for row, text in _all(8).items() if row != 3}
    assert 5 <= server.prompts()["row 3"] < 30


def test_a_400_is_an_error_of_its_row_and_not_asked_again() -> None:
    too_long = Fault(400, error_json("This model's maximum context length is 4096 tokens", "context_length_exceeded"))
    with OpenAIServer(lambda body, _: too_long if prompt_of(body) == "row 3" else None) as server:
        answers = _ask(server)
    assert answers[3].error == "the endpoint: HTTP 400: This model's maximum context length is 4096 tokens"
    assert server.prompts()["row 3"] == 1


def test_a_form_that_is_refused_for_each_row_ends_the_task() -> None:
    unknown = Fault(400, error_json("Unsupported value: 'temperature' does not support 0.0 with this model."))
    with OpenAIServer(lambda _, __: unknown) as server, pytest.raises(JobFailed, match="refused 20 with: HTTP 400") as failed:
        _ask(server, 1000, atOnce=4)
    assert "engine.endpoint.body" in failed.value.next_step
    assert len(server.asked) <= 24


def test_a_wrong_key_ends_the_task_and_is_never_shown() -> None:
    with OpenAIServer() as server:
        endpoint = Endpoint(url=server.url, model=MODEL, at_once=2)
        wrong = EndpointEngine(endpoint, Generation(), key="sk-wrong-key-42", clock=FastClock())
        with pytest.raises(JobFailed) as failed:
            list(wrong.run(_requests(9)))
    assert "HTTP 401" in failed.value.cause
    assert "apiKeyVariable" in failed.value.next_step
    assert "sk-wrong-key-42" not in str(failed.value)
    assert len(server.asked) <= 2


def test_a_model_that_the_endpoint_lacks_ends_the_task() -> None:
    with OpenAIServer() as server, pytest.raises(JobFailed, match="`other` does not exist") as failed:
        _ask(server, 9, model="other")
    assert "engine.endpoint.model" in failed.value.next_step


def test_a_redirect_gets_no_key() -> None:
    with OpenAIServer() as target, OpenAIServer() as server:
        server.plan = lambda _, __: Fault(307, headers={"Location": f"{target.url}/chat/completions"})
        with pytest.raises(JobFailed, match="it redirects to"):
            _ask(server)
    assert target.asked == []


def test_nothing_listens_there() -> None:
    engine = EndpointEngine(Endpoint(url="http://127.0.0.1:9/v1", model=MODEL), Generation(), key=None, clock=FastClock())
    with pytest.raises(JobFailed, match="no connection") as failed:
        list(engine.run(_requests(3)))
    assert "engine.endpoint.url" in failed.value.next_step


def test_a_key_that_the_server_repeats_is_hidden_in_answers_and_errors() -> None:
    with OpenAIServer(answer=lambda prompt: f"{prompt}: {KEY}") as server:
        server.plan = lambda body, _: Fault(400, error_json(f"bad header {KEY}")) if prompt_of(body) == "row 1" else None
        answers = _ask(server, 2)
    assert answers[0].text == "row 0: ***"
    assert answers[1].error == "the endpoint: HTTP 400: bad header ***"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
def test_a_key_in_the_escapes_of_json_is_hidden(field: str) -> None:
    escaped = "".join(f"\\u{ord(character):04x}" for character in KEY)
    message = json.dumps({"content": "yes", field: "MARK"}).replace("MARK", f"it is {escaped}")
    with OpenAIServer() as server:
        server.plan = lambda _, __: Fault(200, f'{{"choices": [{{"message": {message}, "finish_reason": "stop"}}]}}')
        answer = _ask(server, 1)[0]
    assert "it is ***" in (answer.text, answer.reasoning)


def test_a_key_is_hidden_before_an_error_is_cut() -> None:
    said = f"{'x' * (300 - len(KEY) // 2 - 20)} your key {KEY} is invalid"
    with OpenAIServer(lambda _, __: Fault(401, error_json(said))) as server, pytest.raises(JobFailed) as failed:
        _ask(server)
    assert KEY[:8] not in failed.value.cause


def test_a_word_that_stands_for_a_missing_key_stays_in_answers() -> None:
    reply = Fault(200, json.dumps(completion({}, "The set is EMPTY.")))
    with OpenAIServer(lambda _, __: reply) as server:
        endpoint = Endpoint.model_validate({"url": server.url, "model": MODEL})
        engine = EndpointEngine(endpoint, Generation(), key="EMPTY", clock=FastClock())
        (answer,) = engine.run(_requests(1))
    assert answer.text == "The set is EMPTY."


def test_answers_to_requests_from_before_an_outage_blame_no_row() -> None:
    """Slow answers still arrive while other rows fail: they were asked for when the endpoint was well."""
    clock = FastClock(factor=50.0)
    began = clock.now()

    def fails_while_slow_answers_come(body: dict[str, Any], number: int) -> Fault | None:
        row = int(prompt_of(body).removeprefix("row "))
        if number < 8 and row % 2:  # 2 to 14 seconds
            return Fault(200, json.dumps(completion({}, f"answer to row {row}")), hang_s=2.0 * row / clock.factor)
        return Fault(500, "boom") if clock.now() - began < 25 else None

    with OpenAIServer(fails_while_slow_answers_come) as server:
        assert _texts(_ask(server, 24, clock=clock, atOnce=8)) == _all(24)


def test_an_answer_of_a_megabyte() -> None:
    with OpenAIServer(answer=lambda _: "ü" * 1_000_000) as server:
        assert len(_ask(server, 2)[1].text or "") == 1_000_000


def test_a_reply_without_end_is_not_kept() -> None:
    with OpenAIServer(lambda _, __: Fault(200, b"x" * (17 << 20))) as server:
        assert "more than 16 MiB" in (_ask(server, 1, clock=FastClock(500.0))[0].error or "")


def test_requests_per_minute_are_kept() -> None:
    clock = FastClock(200.0)
    began = clock.now()
    with OpenAIServer() as server:
        _ask(server, 31, clock=clock, requestsPerMinute=60)
    assert clock.now() - began >= 30


def test_tokens_per_minute_are_kept() -> None:
    """A row takes 6 tokens: 2 of the prompt, 4 of the answer."""
    clock = FastClock(200.0)
    began = clock.now()
    with OpenAIServer() as server:
        _ask(server, 60, clock=clock, tokensPerMinute=360, generation={"maxTokens": 4}, atOnce=4)
    assert clock.now() - began >= 50


def test_a_model_that_wants_the_newer_name_of_the_limit_gets_it() -> None:
    said = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    with OpenAIServer(lambda body, _: Fault(400, error_json(said)) if "max_tokens" in body else None) as server:
        assert _texts(_ask(server, 90)) == _all(90)
    assert sum("max_tokens" in body for body in server.asked) <= 32


def test_fields_of_the_body_are_added_and_removed() -> None:
    with OpenAIServer() as server:
        _ask(server, 1, body={"reasoning_effort": "low", "temperature": None})
    assert server.asked[0]["reasoning_effort"] == "low"
    assert "temperature" not in server.asked[0]


def test_text_goes_to_completions() -> None:
    with OpenAIServer() as server:
        engine = EndpointEngine(Endpoint(url=server.url, model=MODEL), Generation(), key=KEY)
        answers = {answer.key: answer.text for answer in engine.run(_requests(3, chat=False))}
    assert answers == _all(3)
    assert server.asked[0]["prompt"].startswith("row")


@pytest.mark.parametrize("at_once", [1, 16])
@pytest.mark.parametrize("fault", [Fault(503, "<h1>Unavailable</h1>"), Fault(500, "oops"), Fault(reset=True)], ids=["503", "500", "reset"])
def test_an_outage_of_minutes_makes_no_row_an_error(fault: Fault, at_once: int) -> None:
    clock = FastClock()
    began = clock.now()

    def down(_: dict[str, Any], number: int) -> Fault | None:
        return fault if number > 5 and clock.now() - began < 400 else None

    with OpenAIServer(down) as server:
        assert _texts(_ask(server, 40, clock=clock, atOnce=at_once)) == _all(40)
    assert len(server.asked) < 40 + 16 * 14


def test_a_server_that_only_fails_ends_the_task() -> None:
    with OpenAIServer(lambda _, __: Fault(500, "oops")) as server, pytest.raises(JobFailed, match="nothing but: HTTP 500: oops"):
        _ask(server, 40, patience="10m")


def test_without_faults_each_row_is_asked_once() -> None:
    with OpenAIServer(no_fault) as server:
        _ask(server, 300)
    assert set(server.prompts().values()) == {1}
