"""What a hub tells an attempt through the environment of its pods."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuneyard.api import BadInput, EnvVar, JobSpec
from tuneyard.runtime.attempt.assignment import Assignment, job_of, pod_environment

ENVIRONMENT = {
    "TUNEYARD_TASK": "tune",
    "TUNEYARD_ATTEMPT": "3",
    "TUNEYARD_RUN": "8f2c",
    "TUNEYARD_SKU": "h100-80gb",
    "TUNEYARD_SCRATCH": "/scratch",
    "TUNEYARD_WORKERS": "8",
}


def make_job(**tune: Any) -> JobSpec:
    train = {"model": {"name": "m"}, "data": {"source": "d"}}
    score = {"model": {"from": "tune"}, "data": {"source": "d"}}
    tasks = [{"name": "tune", "train": train, **tune}, {"name": "judge", "score": score}]
    return JobSpec.model_validate({"metadata": {"name": "bot"}, "spec": {"tasks": tasks}})


def test_what_the_hub_has_chosen_wins() -> None:
    assignment = Assignment.from_environment(ENVIRONMENT)
    job = make_job(resources={"sku": ["a100-80gb", "h100-80gb"], "workers": {"min": 2, "max": 16}})
    resources = assignment.applied_to(job.spec.task("tune")).resources
    assert (resources.sku, resources.workers, resources.instances) == (["h100-80gb"], 8, 1)
    assert assignment.applied_to(job.spec.task("judge")).resources.instances == 8


def test_a_search_runs_on_the_gang_of_the_task_that_it_tunes() -> None:
    job = make_job(resources={"workers": {"min": 2, "max": 16}})
    search = job.spec.tasks[0].model_validate({"name": "search", "tune": {"task": "tune"}})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": [*job.spec.tasks, search]})})
    chosen = Assignment.from_environment({**ENVIRONMENT, "TUNEYARD_TASK": "search"}).applied(job).spec
    assert (chosen.task("tune").resources.workers, chosen.task("tune").resources.sku) == (8, ["h100-80gb"])
    assert chosen.task("judge") == job.spec.task("judge")


def test_several_gangs_of_a_search_keep_their_size() -> None:
    """Eight workers are two gangs of four."""
    job = make_job(resources={"workers": 4})
    search = job.spec.tasks[0].model_validate({"name": "search", "tune": {"task": "tune", "budget": {"atOnce": 2}}})
    job = job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": [*job.spec.tasks, search]})})
    chosen = Assignment.from_environment({**ENVIRONMENT, "TUNEYARD_TASK": "search"}).applied(job).spec
    assert (chosen.task("tune").resources.workers, chosen.task("tune").resources.sku) == (4, ["h100-80gb"])


def test_without_a_number_of_workers_the_jobspec_decides() -> None:
    assignment = Assignment.from_environment({name: value for name, value in ENVIRONMENT.items() if name != "TUNEYARD_WORKERS"})
    assert assignment.applied_to(make_job(resources={"workers": 4}).spec.task("tune")).resources.workers == 4


def test_numbers_of_later_attempts_are_above_all_earlier_ones() -> None:
    numbers = [Assignment.from_environment({**ENVIRONMENT, "TUNEYARD_ATTEMPT": str(n)}).first_number(3) for n in (1, 2, 3)]
    assert numbers == [1, 5, 9]


@pytest.mark.parametrize("name", ["TUNEYARD_TASK", "TUNEYARD_ATTEMPT", "TUNEYARD_SKU", "TUNEYARD_SCRATCH"])
def test_a_variable_that_is_missing_is_named(name: str) -> None:
    with pytest.raises(BadInput, match=name):
        Assignment.from_environment({**ENVIRONMENT, name: ""})


def test_a_number_that_is_none() -> None:
    with pytest.raises(BadInput, match="not a number"):
        Assignment.from_environment({**ENVIRONMENT, "TUNEYARD_WORKERS": "many"})


def test_the_job_comes_as_json() -> None:
    job = make_job()
    assert job_of({"TUNEYARD_JOB": json.dumps(job.to_yaml_dict())}) == job
    with pytest.raises(BadInput, match="not JSON"):
        job_of({"TUNEYARD_JOB": "{"})
    with pytest.raises(BadInput, match=r"spec\.tasks"):
        job_of({"TUNEYARD_JOB": '{"metadata": {"name": "j"}, "spec": {"tasks": []}}'})


def secret(name: str, *, optional: bool = False) -> EnvVar:
    return EnvVar.model_validate({"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "token", "optional": optional}}})


def test_secrets_stand_under_the_names_of_their_variables() -> None:
    variables = [secret("HF_TOKEN"), EnvVar(name="MODE", value="fast"), secret("COMET_API_KEY", optional=True)]
    assert pod_environment(variables, {"HF_TOKEN": "hf_x", "token": "other"}) == {"HF_TOKEN": "hf_x", "MODE": "fast"}
    with pytest.raises(BadInput, match="HF_TOKEN"):
        pod_environment(variables, {"token": "other"})
