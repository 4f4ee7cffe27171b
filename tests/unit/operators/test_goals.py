"""What a hub can say of a JobSpec before it looks for a place: what no cluster could run, and where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.attempts import NOON, UID, job, process, train

from tuneyard.api import JobSpec, JobStatus
from tuneyard.federation import ask_of
from tuneyard_operators.hub.goals import goal_of
from tuneyard_operators.rendering import Defaults

DEFAULTS = Defaults(image="registry/tuneyard:1", output="s3://tuneyard/jobs")


def problem_of(spec: JobSpec) -> str:
    item = spec.to_yaml_dict()
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
    assert "spec.tasks.2.tune.task: corpus is no train task" in problem_of(searched(task="corpus"))


def test_a_search_on_a_cluster_has_one_gang() -> None:
    assert "leave resources.workers out" in problem_of(searched(space={"resources.workers": [1, 2]}))


def test_a_path_beside_the_file_is_refused_with_what_to_use() -> None:
    local: Mapping[str, Any] = {**train("chat")["train"], "data": {"source": "chats.jsonl", "format": "chat"}}
    assert "use a URI such as s3://bucket/file" in problem_of(job(tasks=[{"name": "chat", "train": local}]))
