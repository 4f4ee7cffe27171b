"""The spans of a hub's job: a tree without orphans, nested in time, and the same whoever makes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.api import JobStatus, Phase
from tuneyard.api.moments import moment_of, written, written_ms
from tuneyard.tracing import SUBMITTED, TRACEPARENT, Context, Span, attempt_context, job_spans, timeline

BEGIN = datetime(2026, 11, 26, 9, 0, tzinfo=UTC)
OUTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def at(seconds: float) -> str:
    return written(BEGIN + timedelta(seconds=seconds))


def ms(seconds: float) -> str:
    return written_ms(BEGIN + timedelta(seconds=seconds))


def item(**annotations: str) -> dict[str, Any]:
    metadata = {"name": "bot", "namespace": "maps", "uid": "u-1", "creationTimestamp": at(0), "annotations": annotations}
    tasks = [{"name": "train", "train": {}}, {"name": "judge", "score": {"model": {"from": "train"}}}]
    return {"metadata": metadata, "spec": {"tasks": tasks}}


def status(**fields: Any) -> JobStatus:
    return JobStatus.model_validate(fields)


PLACE = {"cluster": "east", "sku": "h100-80gb", "workers": 8, "gpus": 8}
LOST = {
    "number": 1,
    "task": "train",
    "token": 1,
    "placement": PLACE,
    "phase": "Failed",
    "placedAt": at(60),
    "startedAt": at(100),
    "endedAt": at(200),
    "failure": "NodeLost",
    "message": "node n1 was lost with password=https://me:secret@host/x",
    "start": {"createdAt": at(61), "scheduledAt": at(63), "runningAt": at(90), "readyAt": at(95)},
    "stages": [{"name": "loading the model", "beganAt": ms(97.5)}],
}
DONE = {
    "number": 2,
    "task": "train",
    "token": 2,
    "placement": PLACE,
    "phase": "Succeeded",
    "placedAt": at(230),
    "endedAt": at(400),
    "stages": [
        {"name": "prepare", "beganAt": ms(240), "endedAt": ms(250)},
        {"name": "first step", "beganAt": ms(250), "endedAt": ms(262.25)},
        {"name": "training", "beganAt": ms(262.25), "endedAt": ms(390)},
        {"name": "checkpoint", "beganAt": ms(300), "endedAt": ms(305), "step": 10, "blockedS": 0.5},
    ],
}
ENDED = status(
    phase="Succeeded",
    finishedAt=at(460),
    attempts=[LOST, DONE, {**DONE, "number": 3, "task": "judge", "placedAt": at(410), "endedAt": at(460), "stages": []}],
    tasks=[
        {"name": "train", "phase": "Succeeded", "waits": [{"at": at(5), "reason": "east: 3 of 4 nodes free"}]},
        {"name": "judge", "phase": "Succeeded"},
    ],
)


def check(spans: list[Span], outer: int | None = None) -> None:
    """One root, no orphan, ids that are met once, children within their parents."""
    known = {span.id: span for span in spans}
    assert len(known) == len(spans)
    assert [span for span in spans if span.parent_id == outer] == spans[:1]
    for span in spans[1:]:
        parent = known[span.parent_id or 0]
        assert parent.start <= span.start
        assert span.end is None or span.start <= span.end
        if parent.end is not None:
            assert span.end is not None
            assert span.end <= parent.end


def test_a_server_that_sleeps_waits_in_no_queue() -> None:
    slept = {**LOST, "phase": "Preempted", "failure": "Preempted", "asleepAt": 1}
    tasks = [{"name": "train", "phase": "Queued"}]

    def queued(*attempts: dict[str, Any]) -> list[tuple[float, float | None]]:
        spans = job_spans(item(), status(phase="Queued", attempts=attempts, tasks=tasks))
        found = [(span.start, span.end) for span in spans if span.name == "queue"]
        return [((start - BEGIN).total_seconds(), end and (end - BEGIN).total_seconds()) for start, end in found]

    assert queued(slept) == [(0, 60)]
    woken = {**slept, "wokenAt": at(220)}
    assert queued(woken) == [(0, 60), (220, None)]
    assert queued(woken, {**DONE, "phase": "Running", "endedAt": None}) == [(0, 60), (220, 230)]


def test_the_way_of_a_job_is_a_tree_whose_pieces_sum_to_the_whole() -> None:
    spans = job_spans(item(**{SUBMITTED: ms(-8.5)}), ENDED)
    check(spans)
    root, by_name = spans[0], {span.name: span for span in spans}
    assert (root.start, root.end) == (BEGIN - timedelta(seconds=8.5), BEGIN + timedelta(seconds=460))
    lost = by_name["attempt 1"]
    assert lost.error == "NodeLost: node n1 was lost with password=https://***@host/x"
    assert by_name["attempt 2"].links == (lost.id,)
    waits = [event.attributes["tuneyard.reason"] for span in spans if span.name == "queue" for event in span.events]
    assert waits == ["east: 3 of 4 nodes free"]
    assert by_name["checkpoint"].parent_id == by_name["training"].id
    assert by_name["task judge"].start == moment_of(at(400)), "it depends on the model of train"
    for parent in (span for span in spans if span.name.startswith(("attempt", "task"))):
        children = [span for span in spans if span.parent_id == parent.id]
        assert sum((took(span) for span in children), timedelta()) == took(parent), parent.name


def test_attempts_of_one_number_have_spans_of_their_own() -> None:
    again = {**LOST, "placedAt": at(210), "endedAt": at(220)}
    spans = job_spans(item(), status(phase="Failed", finishedAt=at(400), attempts=[LOST, again, again, DONE], tasks=[{"name": "train"}]))
    check(spans)
    attempts = [span for span in spans if span.name.startswith("attempt")]
    assert [span.name for span in attempts] == ["attempt 1", "attempt 1", "attempt 1", "attempt 2"]
    assert [span.links for span in attempts[1:]] == [(span.id,) for span in attempts[:-1]]
    assert attempts[0].context == attempt_context(item()["metadata"], "train", 1)


def took(span: Span) -> timedelta:
    assert span.end is not None
    return span.end - span.start


def test_a_pipeline_that_submits_has_the_job_in_its_trace() -> None:
    outer = Context.parse(OUTER)
    assert outer is not None
    assert outer.traceparent == OUTER
    spans = job_spans(item(**{TRACEPARENT: OUTER}), ENDED)
    check(spans, outer.span_id)
    assert {span.context.trace_id for span in spans} == {outer.trace_id}


@pytest.mark.parametrize(
    "text", ["", "x", OUTER.replace("00-", "01-", 1), f"00-{'0' * 32}-b7ad6b7169203331-01", OUTER + "-1", OUTER.upper()]
)
def test_a_wrong_traceparent_is_none(text: str) -> None:
    assert Context.parse(text) is None
    check(job_spans(item(**{TRACEPARENT: text}), ENDED))


@pytest.mark.parametrize("seconds", [-90_000, 30])
def test_a_submission_by_a_wrong_clock_is_left_out(seconds: float) -> None:
    assert "submit" not in {span.name for span in job_spans(item(**{SUBMITTED: ms(seconds)}), ENDED)}


def test_the_text_names_each_piece_and_what_goes_on() -> None:
    queued = status(phase="Queued", tasks=[{"name": "train", "waits": [{"at": at(5), "reason": "east: full"}]}])
    lines = timeline(job_spans(item(), queued), BEGIN + timedelta(minutes=14))
    assert [line.split("  ")[0] for line in lines if line.startswith("job")] == ["job"]
    assert any("queue" in line and "14 min 00 s" in line and "goes on" in line for line in lines)
    assert any("09:00:05 waits: east: full" in line for line in lines)
    assert "task judge" not in "\n".join(lines), "it is not ready"


moments = st.none() | st.integers(-100, 1000).map(at)
stages = st.lists(
    st.builds(
        lambda name, began, ended, step: {"name": name, "beganAt": ms(began), "endedAt": ended, "step": step},
        st.sampled_from(["prepare", "training", "checkpoint", "<script>" * 60]),
        st.integers(0, 1000),
        moments,
        st.none() | st.integers(0, 9),
    ),
    max_size=6,
    unique_by=lambda stage: (stage["name"], stage["beganAt"]),
)
attempts = st.fixed_dictionaries(
    {
        "task": st.sampled_from(["train", "judge", "gone"]),
        "phase": st.sampled_from([*map(str, Phase)]),
        "placedAt": moments,
        "endedAt": moments,
        "stopAskedAt": moments,
        "stages": stages,
        "start": st.none() | st.fixed_dictionaries(dict.fromkeys(("createdAt", "scheduledAt", "runningAt", "readyAt"), moments)),
    }
)
statuses = st.builds(
    lambda phase, finished, found, tasks: status(
        phase=phase,
        finishedAt=finished,
        attempts=[{**each, "number": number, "token": number} for number, each in enumerate(found, 1)],
        tasks=[{"name": name, "phase": state, "waits": waits} for name, (state, waits) in zip(("train", "judge"), tasks, strict=True)],
    ),
    st.sampled_from([*map(str, Phase)]),
    moments,
    st.lists(attempts, max_size=5),
    st.lists(
        st.tuples(
            st.sampled_from([*map(str, Phase)]),
            st.lists(st.integers(0, 900).map(lambda second: {"at": at(second), "reason": "full"}), max_size=3),
        ),
        min_size=2,
        max_size=2,
    ),
)


@given(statuses, st.booleans())
def test_any_status_gives_a_tree_nested_in_time(given_status: JobStatus, deleted: bool) -> None:
    own = item()
    if deleted:
        own["metadata"]["deletionTimestamp"] = at(500)
    spans = job_spans(own, given_status)
    check(spans)
    assert spans == job_spans(own, given_status)
    assert timeline(spans, BEGIN)
    assert all(len(text) <= 300 for span in spans for text in (span.name.removeprefix("task "), span.error))
