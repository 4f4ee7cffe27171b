"""How long a task is expected to take: the planner is asked where it can answer, and an assumption is called one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tuneyard.admission import ask_of
from tuneyard.api import JobSpec, JobStatus, WorkerRange
from tuneyard.cli.submit.command import _estimate
from tuneyard.federation import UNKNOWN_DURATION_S, Ask, duration_words

NOW = datetime(2026, 11, 22, 10, tzinfo=UTC)


def job(
    name: str = "Qwen/Qwen2.5-0.5B", *, sku: str = "h100-80gb", workers: int = 8, spec: dict[str, Any] | None = None, **train: Any
) -> JobSpec:
    body = {"model": {"name": name}, "data": {"source": "s3://b/chats.jsonl"}, "batch": {"global": 64}} | train
    tasks = [{"name": "train", "train": body, "resources": {"workers": workers, "sku": [sku]}}]
    return JobSpec.model_validate({"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": tasks, **(spec or {})}})


def ask(job: JobSpec, status: JobStatus | None = None, task: str = "train") -> Ask:
    return ask_of(job, 0.0, task, status or JobStatus(), ())


def test_ten_steps_of_a_small_model_are_not_thought_to_take_as_long_as_a_hundred_thousand_of_a_large_one() -> None:
    small, large = ask(job(steps=10)), ask(job("meta-llama/Llama-3.1-70B", workers=64, steps=100_000))
    assert (small.basis, large.basis) == ("plan", "plan")
    assert small.seconds < 300
    assert large.seconds > 24 * 3600


def test_the_planner_is_asked_through_the_tasks_that_a_model_comes_from() -> None:
    found = job(steps=10)
    more = found.spec.tasks[0].to_yaml_dict()
    more = {**more, "name": "more", "train": {**more["train"], "model": {"from": "train"}, "steps": 1000}}
    two = JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [found.spec.tasks[0].to_yaml_dict(), more]}})
    assert ask(two, task="more").basis == "plan"
    assert ask(two, task="more").seconds > ask(two).seconds


def test_an_attempt_after_the_first_gets_workers_that_divide_the_rows_of_a_step_that_the_first_has_decided() -> None:
    found = job(steps=10, batch={"global": "auto"})
    found.spec.tasks[0].resources.workers = WorkerRange(min=2, max=6)
    assert (ask(found).worlds, ask(found).basis) == ((6, 5, 4, 3, 2), "plan")

    def after(**plan: Any) -> Ask:
        attempt = {"number": 1, "task": "train", "token": 1, "plan": plan}
        return ask(found, JobStatus.model_validate({"attempts": [attempt]}))

    assert after(micro_batch=9, grad_accum=1, workers=6, tensor_parallel=1).worlds == (6, 3, 2)
    for unusable in ({}, {"micro_batch": "many", "grad_accum": 1, "workers": 6}, {"micro_batch": 10**9, "grad_accum": 9, "workers": 6}):
        assert after(**unusable).worlds == (6, 5, 4, 3, 2)


def test_a_search_takes_its_trials_and_no_longer_than_its_minutes() -> None:
    def search(**budget: Any) -> Ask:
        train = job(steps=1000).spec.tasks[0].to_yaml_dict()
        tune = {"name": "search", "tune": {"task": "train", "budget": budget}}
        return ask(JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [train, tune]}}), task="search")

    assert search(trials=10).seconds < search(trials=20).seconds
    assert search(trials=200, minutes=5).seconds == pytest.approx(60 + 300)


def test_a_search_asks_for_all_its_gangs_and_takes_fewer() -> None:
    def search(workers: int, **budget: Any) -> Ask:
        train = job(steps=1000, workers=workers).spec.tasks[0].to_yaml_dict()
        tune = {"name": "search", "tune": {"task": "train", "budget": {"trials": 20, **budget}}}
        return ask(JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [train, tune]}}), task="search")

    assert [search(4).worlds, search(4, atOnce=3).worlds] == [(4,), (12, 8, 4)]
    assert search(1, atOnce=2).seconds - 60 == pytest.approx((search(1).seconds - 60) / 2)
    assert search(4, atOnce=3).least == search(4).least, "what fits is asked of one gang"


@pytest.mark.parametrize(
    "unknown",
    [
        job("acme/secret-model", steps=10),
        job(steps=None, epochs=2),
        job(steps=10, sku="cpu", workers=2),
        job(steps=10, model={"name": "Qwen/Qwen2.5-0.5B", "revision": "abc"}),
        job("meta-llama/Llama-3.1-405B", workers=1, steps=10),
        job(steps=10, batch={"global": 63}),
    ],
    ids=["a model that is not known", "epochs", "cpu", "a revision", "what fits nowhere", "a batch that does not divide"],
)
def test_what_the_planner_cannot_tell_is_assumed_and_said_to_be(unknown: JobSpec) -> None:
    found = ask(unknown)
    assert (found.seconds, found.basis) == (UNKNOWN_DURATION_S, "assumed")
    assert duration_words(found.seconds, found.basis) == "about 4.0 h, assumed, as nothing is known of it: set spec.expectedDuration"


def test_the_guess_of_its_author_goes_before_the_plan_and_its_own_pace_before_both() -> None:
    guessed = job(steps=1000, spec={"expectedDuration": "3h"})
    assert (ask(guessed).seconds, ask(guessed).basis) == (3 * 3600, "given")
    ran = {"number": 1, "task": "train", "token": 1, "lastStep": 100, "checkpointStep": 100}
    ran |= {"startedAt": "2026-11-22T10:00:00+00:00", "endedAt": "2026-11-22T10:10:00+00:00"}
    status = JobStatus.model_validate({"attempts": [ran], "tasks": [{"name": "train", "progress": {"step": 100, "of": 1000}}]})
    assert (ask(guessed, status).seconds, ask(guessed, status).basis) == (pytest.approx(900 * 6.0), "pace")


def test_a_dry_run_calls_an_assumption_one_and_its_cost_too() -> None:
    row = {"task": "train", "cluster": "east", "gpus": 8, "sku": "h100-80gb", "nodes": {"a": 8}, "cost": 80.0, "unchecked": ""}
    (assumed,) = _estimate([row | {"duration_s": 14400, "duration_from": "assumed"}], NOW)
    assert "about 4.0 h, assumed" in assumed
    assert "cost, if so, 80.00" in assumed
    (planned,) = _estimate([row | {"duration_s": 90, "duration_from": "plan"}], NOW)
    assert planned.endswith("for about 2 min, as planned; cost 80.00")
    (unchecked,) = _estimate([row | {"duration_s": 90, "duration_from": "plan", "unchecked": "nobody checked whether it fits"}], NOW)
    assert unchecked.endswith("as planned; cost 80.00; nobody checked whether it fits")
    row |= {"cluster": None, "ahead": 2, "why": "no room", "expected_start": "2026-11-22T10:30:00+00:00"}
    assert _estimate([row], NOW) == ["train: would wait behind 2; expected start: about 2026-11-22 10:30 UTC, in 30m: no room"]


def test_a_task_at_an_endpoint_asks_for_a_head_and_no_gpu() -> None:
    """Its model is the endpoint's: the rules about SKUs read a task without one."""
    endpoint = {"url": "https://api.example.com/v1", "model": "small"}
    task = {"name": "judge", "score": {"data": {"source": "s3://b/rows.jsonl"}, "engine": {"endpoint": endpoint}}}
    found = ask_of(
        JobSpec.model_validate({"metadata": {"name": "j"}, "spec": {"tasks": [task]}}), 0.0, "judge", JobStatus(), ("h100-80gb",)
    )

    assert found.worlds == (0,)
    assert found.fit == ""


def scoring(name: str = "meta-llama/Llama-3.1-8B", sku: str = "h100-80gb", instances: int = 1, **data: Any) -> JobSpec:
    score = {
        "model": {"name": name},
        "data": {"source": "s3://b/rows.jsonl", "prompt": "question"} | data,
        "generation": {"maxTokens": 200},
    }
    task = {"name": "judge", "score": score, "resources": {"sku": [sku], "instances": instances}}
    return JobSpec.model_validate({"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": [task]}})


def test_scoring_takes_as_long_as_the_rows_that_the_task_names() -> None:
    few, many = (ask(scoring(limit=limit), task="judge") for limit in (100, 1_000_000))
    assert (few.basis, many.basis) == ("plan", "plan")
    assert 60 < few.seconds < 600
    assert many.seconds > 100 * few.seconds
    half = ask(scoring(limit=1_000_000, instances=2), task="judge")
    assert half.seconds < 0.6 * many.seconds
    assert ask(scoring(limit=1_000_000, sample=100), task="judge").seconds == few.seconds


def test_scoring_on_a_faster_gpu_is_converted_to_the_reference() -> None:
    on_a100, on_h100 = (ask(scoring(sku=sku, limit=1_000_000), task="judge").seconds for sku in ("a100-80gb", "h100-80gb"))
    assert on_h100 == pytest.approx(on_a100, rel=0.4)


@pytest.mark.parametrize(
    "unknown",
    [scoring(), scoring(sample=0.1), scoring("acme/secret-model", limit=100), scoring(sku="cpu", limit=100)],
    ids=["rows", "a share of unknown rows", "a model that is not known", "cpu"],
)
def test_scoring_of_what_is_not_known_is_assumed(unknown: JobSpec) -> None:
    assert ask(unknown, task="judge").basis == "assumed"
