"""What a hub can say of a JobSpec before it looks for a place: what no cluster could run, and where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.builders.attempts import NOON, UID, job, process, train

from tuneyard.api import JobSpec, JobStatus, ModelTemplate
from tuneyard.cluster import read_job
from tuneyard.federation import ask_of
from tuneyard_operators.hub.goals import goal_of
from tuneyard_operators.rendering import Defaults

DEFAULTS = Defaults(image="registry/tuneyard:1", output="s3://tuneyard/jobs")


def problem_of(spec: JobSpec, *tasks: Mapping[str, Any]) -> str:
    """What the hub says of a job, and of further tasks that the API server let pass."""
    item = spec.to_yaml_dict()
    item["spec"]["tasks"] += tasks
    item["metadata"] |= {"uid": UID, "generation": 1, "creationTimestamp": NOON.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return goal_of(item, DEFAULTS).problem


def searched(**tune: Any) -> JobSpec:
    return job(tasks=[process("corpus"), train("chat", workers=4), {"name": "search", "tune": {"task": "chat", **tune}}])


def test_a_search_asks_for_the_gang_of_the_task_that_it_tunes() -> None:
    spec = searched()
    assert problem_of(spec) == ""
    ask = ask_of(spec, NOON.timestamp(), "search", JobStatus())
    chat = ask_of(spec, NOON.timestamp(), "chat", JobStatus())
    assert (ask.worlds, ask.skus, ask.near) == (chat.worlds, chat.skus, chat.near) == ((4,), (), ("s3://b/d.jsonl",))


def test_a_search_of_what_does_not_train_says_so() -> None:
    problem = problem_of(job(tasks=[process("corpus")]), {"name": "search", "tune": {"task": "corpus"}})
    assert problem == "spec.tasks.1.tune.task: names the process task corpus, which is no train, rank or score task: the job has none"


def test_a_search_on_a_cluster_has_one_gang() -> None:
    assert "leave resources.workers out" in problem_of(searched(space={"resources.workers": [1, 2]}))


def test_a_search_on_engines_is_of_one_machine() -> None:
    score = {"name": "judge", "score": {"model": {"name": "m"}, "data": {"source": "s3://b/q.parquet"}}}
    problem = problem_of(job(tasks=[score, {"name": "search", "tune": {"task": "judge"}}]))
    assert "names the score task judge, and settings of engines are searched on one machine: run tuneyard tune there" in problem


def test_a_job_that_an_older_version_stored_with_a_gang_over_several_clusters_is_read() -> None:
    stored = job(tasks=[process("corpus")]).to_yaml_dict()
    stored["spec"]["placement"] = {"clusters": ["east"], "spread": "allowed"}
    stored["metadata"] |= {"uid": UID, "generation": 1, "creationTimestamp": NOON.strftime("%Y-%m-%dT%H:%M:%SZ")}
    goal = goal_of(stored, DEFAULTS)
    assert (goal.problem, goal.job.spec.placement.spread, goal.job.spec.placement.clusters) == ("", "never", ["east"])
    assert goal.job.to_yaml_dict()["spec"]["placement"]["spread"] == "never", "what members get is what they take"
    read = read_job(stored)
    assert read is not None
    assert read[0].spec.placement.spread == "never"


def test_a_path_beside_the_file_is_refused_with_what_to_use() -> None:
    local: Mapping[str, Any] = {**train("chat")["train"], "data": {"source": "chats.jsonl", "format": "chat"}}
    problem = problem_of(job(tasks=[{"name": "chat", "train": local}]))
    assert problem.startswith(
        "spec.tasks.0.train.data.source: chats.jsonl is a file of one machine, and no cluster has it: `tuneyard submit FILE`"
    )
    assert "use a URI such as s3://bucket/file" in problem


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ({"train": {"model": {"name": "./base"}, "data": {"source": "s3://b/x"}}}, "train.model.name"),
        (
            {"train": {"model": {"name": "m"}, "data": {"source": "s3://b/x", "validation": {"source": "v.jsonl"}}}},
            "train.data.validation.source",
        ),
        ({"train": {"model": {"name": "m"}, "data": {"source": "s3://b/x", "chatTemplate": "chat.jinja"}}}, "train.data.chatTemplate"),
        ({"score": {"model": {"name": "m"}, "data": {"source": "questions.csv"}}}, "score.data.source"),
        ({"process": {"command": ["python", "prepare.py"]}}, "process.command.1"),
        ({"process": {"command": ["python", "prepare.py"], "workingDir": "tools"}}, "process.workingDir"),
    ],
)
def test_every_path_beside_the_file_is_refused_by_its_field(task: Mapping[str, Any], field: str) -> None:
    assert problem_of(job(tasks=[{"name": "one", **task}])).startswith(f"spec.tasks.0.{field}: ")


def test_what_a_cluster_may_have_is_not_refused() -> None:
    image = job(tasks=[{"name": "one", "process": {"command": ["python", "prepare.py"]}}], image="registry/own:1")
    mounted = job(tasks=[{"name": "one", "process": {"command": ["python", "prepare.py"], "workingDir": "/mnt/tools"}}])
    assert (problem_of(image), problem_of(mounted)) == ("", "")
    assert "spec.storage.output: runs/one is a folder of one machine" in problem_of(job(storage={"output": "runs/one"}))


@pytest.mark.parametrize("workers", ["auto", {"min": 3, "max": 8}])
def test_the_hub_takes_only_numbers_of_workers_that_the_batch_can_be_divided_over(workers: Any) -> None:
    task = train("chat", sku=["a100-80gb"])
    task["train"]["batch"] = {"global": 32, "micro": 8}
    task["resources"]["workers"] = workers
    ask = ask_of(job(tasks=[task]), NOON.timestamp(), "chat", JobStatus())
    assert ask.worlds == ((4, 2, 1) if workers == "auto" else (4,))
    task["train"]["batch"] = {"global": 12}
    ask = ask_of(job(tasks=[task]), NOON.timestamp(), "chat", JobStatus())
    assert ask.worlds == ((6, 4, 3, 2, 1) if workers == "auto" else (6, 4, 3))


def test_the_goal_of_a_job_by_a_template_that_is_not_there_waits_and_a_wrong_one_is_the_authors_own() -> None:
    item = job(tasks=[train("chat")]).to_yaml_dict()
    item["metadata"] |= {"uid": UID, "generation": 1, "creationTimestamp": NOON.strftime("%Y-%m-%dT%H:%M:%SZ")}
    item["spec"] |= {"template": "small", "image": "mine", "cancelled": True}
    found = goal_of(item, DEFAULTS)
    assert (found.may_pass, found.template, found.job.spec.cancelled) == (True, None, True)
    assert found.problem == "there is no ModelTemplate small here"

    template = ModelTemplate.model_validate({"metadata": {"name": "small"}, "spec": {"job": {"image": "base"}, "fixed": ["job.image"]}})
    found = goal_of(item, DEFAULTS, find=lambda _: template)
    assert (found.may_pass, found.problem) == (False, 'spec.image: the ModelTemplate small fixes it to "base"; found "mine"')
    del item["spec"]["image"]
    found = goal_of(item, DEFAULTS, find=lambda _: template)
    assert (found.problem, found.job.spec.image, found.job.spec.template) == ("", "base", None)
    assert found.template is not None
    assert found.template.spec == {"job": {"image": "base"}, "fixed": ["job.image"]}
    item["status"] = {"template": {"name": "small", "spec": {"job": {"image": "older"}}}}
    assert goal_of(item, DEFAULTS, find=lambda _: template).job.spec.image == "older"


def test_what_is_kept_of_a_template_that_cannot_be_read_stops_nothing_and_the_end_is_seen() -> None:
    item = job(tasks=[train("chat")], deadline="2h").to_yaml_dict()
    item["metadata"] |= {"uid": UID, "generation": 1, "creationTimestamp": NOON.strftime("%Y-%m-%dT%H:%M:%SZ")}
    item["spec"]["template"] = "small"
    for kept in ({"name": "small", "spec": {"fixed": ["process.image"]}}, {"name": "small", "spec": {"train": [1]}}):
        item["status"] = {"template": kept}
        found = goal_of(item, DEFAULTS)
        assert (found.may_pass, "cannot be read" in found.problem, found.job.spec.deadline) == (True, True, 7200)
    item["status"] = {"template": {"name": "small", "spec": {"ofANewerHub": 1}}}
    template = goal_of(item, DEFAULTS).template
    assert template is not None
    assert template.spec == {"ofANewerHub": 1}
