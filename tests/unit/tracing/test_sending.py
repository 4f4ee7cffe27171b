"""Traces on their way to a receiver: from a hub that is killed, from a run on this machine, and where the receiver is not well."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.clusters.hub_in_memory import JOBS, SETTINGS, Scene, running_hub, until
from tests.servers.otlp_receiver import Receiver, attributes, check_tree, receiver

from tuneyard.api import JobSpec
from tuneyard.tracing import Context, Exporter, Span, exporter_from, is_on
from tuneyard.tracking import Stage, TaskEvent, Warned, open_recorder, span_sink
from tuneyard.tracking.sink import Warnings
from tuneyard_operators.hub import write_pace
from tuneyard_operators.tracing import sender

TRACED = replace(SETTINGS, backoff_s=0.1, defaults=replace(SETTINGS.defaults, traces=True))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_pace, "_BETWEEN_WRITES_S", 0.05)
    monkeypatch.setattr(write_pace, "_AFTER_A_PLACEMENT_S", 0.05)
    monkeypatch.setattr(sender, "_GATHER_S", 0.05)
    monkeypatch.setattr(sender, "_LEAST_PAUSE_S", 0.05)
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    monkeypatch.delenv("TRACEPARENT", raising=False)


async def lost_once(stage: Scene, name: str) -> str:
    """Run a job whose first attempt fails. Returns the name of its second."""
    await stage.submit(name)
    first = await stage.started(name)
    await stage.begin(first)
    await stage.report(first, phase="Failed", failure={"kind": "NodeLost", "message": "gone"})
    await stage.removed(first)
    second = await until(lambda: stage.rayjob(name), "a second attempt")
    await stage.begin(second)
    return second


def test_a_killed_hub_loses_no_span_and_doubles_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)

        async def run() -> None:
            async with running_hub(settings=TRACED) as stage:
                second = await lost_once(stage, "a")
                await until(lambda: got.got, "spans are sent while the job runs")
                env = stage.api.objects["RayJob"][JOBS, second]["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
                variables = {each["name"]: each.get("value") for each in env["containers"][0]["env"]}
                api = stage.api
            async with running_hub(settings=TRACED, api=api) as stage:
                stages = [{"name": "training", "beganAt": "2026-11-26T12:00:00.500Z"}]
                await stage.report(second, phase="Succeeded", stages=stages)
                await until(lambda: stage.status("a").get("phase") == "Succeeded", "it ends")
                await until(lambda: any(span.name == "job" for span in got.got), "the root is sent")
            async with running_hub(settings=TRACED, api=api) as stage:
                sent = len(got.got)
                await until(lambda: len(got.got) > sent, "the next hub sends again")
                await stage.delete("a")
                await stage.removed(second)
                await stage.let_go("a")
            spans = got.trace()
            check_tree(spans)
            (attempt,) = got.named("attempt 2")
            assert variables["TRACEPARENT"] == f"00-{attempt.trace_id.hex()}-{attempt.span_id.hex()}-01"
            assert [len(got.named(name)) for name in ("job", "task train", "attempt 1", "attempt 2", "training")] == [1, 1, 1, 1, 1]
            assert attributes(got.named("attempt 1")[0])["error.type"] == "NodeLost"
            assert got.named("attempt 1")[0].status.code == 2

        asyncio.run(run())


def test_a_receiver_that_is_away_holds_up_no_job_and_gets_all_later(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver(status=500) as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")

        async def run() -> None:
            async with running_hub(settings=TRACED) as stage:
                second = await lost_once(stage, "a")
                await stage.report(second, phase="Succeeded")
                await until(lambda: stage.status("a").get("phase") == "Succeeded", "it ends")
                refused = len(got.headers)
                await until(lambda: len(got.headers) > refused + 1, "the receiver refuses its last spans")
                got.status = 200
                await until(lambda: any(span.name == "job" for span in got.got), "the root is sent")
            check_tree(got.trace())

        asyncio.run(run())


def test_a_deleted_job_has_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_GATHER_S", 0.5)
    with receiver() as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)

        async def run() -> None:
            async with running_hub(settings=TRACED) as stage:
                await stage.submit("a")
                attempt = await stage.started("a")
                await stage.begin(attempt)
                await stage.delete("a")
                await stage.report(attempt, phase="Cancelled")
                await stage.removed(attempt)
                await stage.let_go("a")
            check_tree(got.trace())
            assert got.named("attempt 1")

        asyncio.run(run())


def test_a_job_whose_spans_are_refused_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = "unwanted"  # not a word of hexadecimal digits, such as `bad`, which ids of the other job may have
    with receiver(refuse=refused) as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)

        async def run() -> None:
            async with running_hub(settings=TRACED) as stage:
                for name in (refused, "good"):
                    await stage.submit(name)
                    attempt = await stage.started(name)
                    await stage.begin(attempt)
                    await stage.report(attempt, phase="Succeeded")
                    await stage.removed(attempt)
                await until(lambda: any(span.name == "job" for span in got.got), "the root of the other is sent")
            assert [attributes(span)["tuneyard.job.name"] for span in got.got if span.name == "job"] == ["good"]

        asyncio.run(run())


def job() -> JobSpec:
    command = {"name": "words", "process": {"command": ["true"]}}
    return JobSpec.model_validate({"metadata": {"name": "words"}, "spec": {"tasks": [command]}})


def record(tmp_path: Path) -> list[str]:
    """The events of a run. Returns the warnings."""
    warned: list[str] = []
    recorder = open_recorder(
        job(), output=str(tmp_path), folder=tmp_path, warn=lambda event: warned.append(event.message) if isinstance(event, Warned) else None
    )
    for event in (
        TaskEvent(task="words", state="started", kind="process"),
        Stage(task="words", name="running true"),
        TaskEvent(task="words", state="failed", failure="UserError", message="exit code 1 of https://me:secret@host/"),
    ):
        recorder(event)
    recorder.close("failed", "task words failed")
    return warned


def test_a_run_on_one_machine_is_a_trace_of_the_pipeline_that_runs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with receiver() as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc")
        monkeypatch.setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        assert record(tmp_path) == []
        root = check_tree(got.trace(), bytes.fromhex("b7ad6b7169203331"))
        assert {span.name for span in got.got} == {"job", "task words", "prepare", "running true", "report and end"}
        assert got.headers[0].get("authorization") == "Bearer abc"
        assert root.trace_id.hex() == "0af7651916cd43dd8448eb211c80319c"
        assert "secret" not in str(got.got)


@pytest.mark.parametrize("sick", [Receiver(status=500), Receiver(delay_s=60), Receiver(url="http://127.0.0.1:9")])
def test_a_sick_receiver_is_a_warning_within_bounded_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sick: Receiver) -> None:
    monkeypatch.setattr(span_sink, "END_LIMIT_S", 1.0)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with receiver(status=sick.status, delay_s=sick.delay_s) as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sick.url or got.url)
        (warning,) = record(tmp_path)
        assert "traces" in warning


def test_a_receiver_that_was_away_and_is_slow_at_the_end_is_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(span_sink, "END_LIMIT_S", 0.3)
    tried, ended, warnings = threading.Event(), threading.Event(), Warnings()

    def away() -> None:
        if tried.is_set():
            ended.wait(60)
        tried.set()
        raise OSError("away")

    sink = span_sink.SpanSink(job(), warnings, away)
    assert tried.wait(60)
    sink.close("succeeded", "")
    ended.set()
    assert warnings.take() == ["traces are not sent: OSError: away. The job goes on"]


def test_nothing_is_sent_or_imported_without_an_endpoint(tmp_path: Path) -> None:
    off = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"}
    assert [is_on({}), is_on(off), is_on({**off, "OTEL_SDK_DISABLED": ""})] == [False, False, True]
    assert record(tmp_path) == []


@contextmanager
def raw_receiver(head: bytes, piece: bytes, pause_s: float) -> Iterator[tuple[str, list[int]]]:
    """A receiver that answers with `head`, and then with `piece` again and again. Gives its address, and the bytes it has sent."""
    ended, sent = threading.Event(), [0]

    def answer(connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(65536)
                connection.sendall(head)
                while not ended.wait(pause_s):
                    connection.sendall(piece)
                    sent[0] += len(piece)
            except OSError:
                pass  # the sender has given up

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", sent
        finally:
            ended.set()
            server.shutdown(socket.SHUT_RDWR)


def exporter_to(monkeypatch: pytest.MonkeyPatch, url: str, timeout_s: float) -> Exporter:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(timeout_s))
    made = exporter_from(os.environ, "test")
    assert made is not None
    return made


def a_span() -> Span:
    now = datetime.now(UTC)
    return Span(name="job", context=Context(trace_id=1, span_id=1), parent_id=None, start=now, end=now)


DRIPS = [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"HTTP/1.1 503 Busy\r\nX-Slow: "]


@pytest.mark.parametrize("head", DRIPS)
def test_an_answer_in_drips_is_a_failure_within_the_limit(monkeypatch: pytest.MonkeyPatch, head: bytes) -> None:
    with raw_receiver(head, b"x", 0.1) as (url, _):
        made = exporter_to(monkeypatch, url, 0.5)
        found: list[str] = []
        sending = threading.Thread(target=lambda: found.extend(made.send([a_span()]) for _ in range(6)), daemon=True)
        sending.start()
        sending.join(60)
        assert len(found) == 6
        assert all("within 0.5 s" in reason or "before this one" in reason for reason in found)


def test_close_ends_the_wait_for_an_answer_in_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_receiver(DRIPS[1], b"x", 0.05) as (url, sent):
        made = exporter_to(monkeypatch, url, 600)
        found: list[str] = []
        sending = threading.Thread(target=lambda: found.append(made.send([a_span()])), daemon=True)
        sending.start()
        began = time.monotonic()
        while not sent[0] and time.monotonic() < began + 60:
            sending.join(0.05)
        made.close()
        sending.join(60)
        assert found == ["the exporter is closed"]


def test_a_long_answer_is_not_read_and_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_receiver(b"HTTP/1.1 200 OK\r\nContent-Length: 200000000\r\n\r\n", b"x" * 1_000_000, 0) as (url, sent):
        assert "is longer than 65536 bytes" in exporter_to(monkeypatch, url, 60).send([a_span()])
        assert sent[0] < 100_000_000, "what the sockets hold, and no more"


@pytest.mark.parametrize("status", [301, 302, 303, 304, 307, 308])
def test_a_redirect_is_a_failure_that_names_the_endpoint(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    with receiver(status=status) as got:
        url = f"{got.url}/v1/traces?key=hidden".replace("//", "//me:secret@")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url)
        reason = exporter_to(monkeypatch, got.url, 60).send([a_span()])
        assert f"{got.url}/v1/traces answered {status}" in reason
        assert "secret" not in reason
        assert "hidden" not in reason
        assert len(got.headers) == 1


def test_a_hub_logs_redirects_once_and_sends_the_spans_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with receiver(status=308) as got:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)

        async def run() -> None:
            async with running_hub(settings=TRACED) as stage:
                await lost_once(stage, "a")
                await until(lambda: len(got.headers) > 1, "the receiver redirects twice")
                assert got.got == []
                got.status = 200
                await until(lambda: got.got, "the spans are sent again")

        asyncio.run(run())
        lines = [record.getMessage() for record in caplog.records if record.name == sender.__name__]
        assert len(lines) == 1
        assert f"{got.url}/v1/traces answered 308" in lines[0]
