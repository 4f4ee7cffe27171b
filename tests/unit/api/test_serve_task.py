"""A serve task in a JobSpec: what it may say, and what is refused with its reason."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from tests.builders.attempts import train

from tuneyard.api import JobSpec
from tuneyard.api.local_files import local_files

KEY = {"name": "TUNEYARD_API_KEY", "valueFrom": {"secretKeyRef": {"name": "bot", "key": "key"}}}


def served(*models: dict[str, Any], tasks: tuple[dict[str, Any], ...] = (), **changes: Any) -> JobSpec:
    serve = {"name": "serve", "serve": {"models": list(models), **changes.pop("serve", {})}, **changes.pop("task", {})}
    return JobSpec.model_validate({"metadata": {"name": "bot"}, "spec": {"env": [KEY], "tasks": [*tasks, serve], **changes}})


def test_a_server_comes_after_the_task_that_trains_its_model_and_is_not_preempted() -> None:
    job = served({"from": "one"}, {"name": "s3://models/other", "servedAs": "other"}, tasks=(train("one"),), serve={"idle": "15m"})
    task = job.spec.task("serve")

    assert job.spec.needs(task) == ["one"]
    assert (task.kind, task.engine_ranks, job.is_preemptible(task)) == ("serve", 1, False)
    assert served({"name": "m"}, preemptible=True).is_preemptible(task)
    assert [(file.path, file.text) for file in local_files(served({"name": "./out"}).spec)] == [
        (("spec", "tasks", 0, "serve", "models", 0, "name"), "./out")
    ]


@pytest.mark.parametrize(
    ("why", "given"),
    [
        ("ends the server before its first request", {"serve": {"idle": 0}}),
        ("needs a key that requests bring", {"env": []}),
        ("needs a key that requests bring", {"env": [{"name": "TUNEYARD_API_KEY", "value": "in the open"}]}),
        ("one engine: leave instances out", {"task": {"resources": {"instances": 2}}}),
        ("which serves and does not end", {"tasks": ({"name": "late", "process": {"command": ["true"]}, "dependsOn": ["serve"]},)}),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(why: str, given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=why):
        served({"name": "m"}, **given)


@pytest.mark.parametrize("second", [{"name": "one"}, {"name": "two", "servedAs": "bot"}])
def test_two_models_of_one_name_are_refused(second: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=r"two models are (named one|served as bot)"):
        served({"name": "one", "servedAs": "bot"}, second)


def test_only_a_task_that_trains_a_language_model_can_be_served() -> None:
    with pytest.raises(ValidationError, match="names the task made, which trains no language model"):
        served({"from": "made"}, tasks=({"name": "made", "process": {"command": ["true"]}},))
