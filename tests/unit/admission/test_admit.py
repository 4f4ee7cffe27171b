"""`admit` at its venues: what keeps a job from running anywhere, on a hub, on a machine; and numbers of workers, which are counted once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuneyard.admission import Anywhere, Hub, Machine, admit, ask_of, choose_workers, remarks
from tuneyard.api import BadInput, JobSpec, JobStatus, Task
from tuneyard.api.worker_counts import worker_counts
from tuneyard.catalog import known_config
from tuneyard.federation import worlds_of

QWEN = "Qwen/Qwen2.5-0.5B"
"""14 heads, in the catalog."""
SERVER = Machine("h100-80gb", 8)


def job(workers: Any = "auto", sku: tuple[str, ...] = ("h100-80gb",), rows: int = 64, **train: Any) -> JobSpec:
    body = {"model": {"name": QWEN}, "data": {"source": "s3://b/rows.jsonl"}, "batch": {"global": rows}, "steps": 5} | train
    tasks = [{"name": "a", "train": body, "resources": {"workers": workers, "sku": list(sku)}}]
    return JobSpec.model_validate({"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": tasks}})


@pytest.mark.parametrize("workers", [4, 8, "auto", {"min": 4, "max": 16}])
def test_heads_that_a_degree_does_not_divide_are_refused_at_every_venue(workers: Any) -> None:
    one = job(workers, strategy={"contextParallel": 4})
    read = {"a": known_config(QWEN) or {}}

    for found in (admit(one, Anywhere()), admit(one, Hub()), admit(one, SERVER, configs=read)):
        assert len(found) == 1
        assert "4 ranks cannot share 14 attention heads evenly" in str(found[0])


def test_a_model_that_nobody_knows_is_for_the_pod_to_refuse() -> None:
    one = job(4, model={"name": "s3://b/model"}, strategy={"contextParallel": 4})

    assert admit(one, Hub()) == []
    assert admit(one, SERVER) == []


def test_a_task_goes_on_with_the_model_of_the_task_before_it() -> None:
    first = job(2).spec.tasks[0].to_yaml_dict()
    later = job(4, strategy={"contextParallel": 4}).spec.tasks[0].to_yaml_dict()
    later |= {"name": "b", "train": {**later["train"], "model": {"from": "a"}}}
    both = JobSpec.model_validate({"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": [first, later]}})

    for found in (admit(both, Hub()), admit(both, SERVER, configs={"a": known_config(QWEN) or {}})):
        assert [each.path[2] for each in found] == [1]


def test_numbers_of_workers_that_break_a_rule_are_not_chosen_on_a_machine_either() -> None:
    """The hub left such numbers out, and one machine took the largest, whatever it was."""
    hybrid = job({"min": 2, "max": 3}, rows=6, strategy={"zero": 3, "shardWithin": "host"})
    assert "shardWithin: host" in str(admit(hybrid, Hub())[0])
    assert "shardWithin: host" in str(admit(hybrid, SERVER)[0])

    alone = job({"min": 1, "max": 2}, rows=2, strategy={"zero": 0, "quantisedAllReduce": "int8"})
    assert ask_of(alone, 0.0, "a", JobStatus(), ("h100-80gb",)).worlds == (2,)
    assert choose_workers(alone.spec.tasks[0], SERVER) == 2


@pytest.mark.parametrize("space", [{"resources.workers": [1, 2]}])
def test_a_search_over_numbers_of_workers_runs_on_one_machine_alone(space: dict[str, Any]) -> None:
    one = job()
    tune = Task.model_validate({"name": "z", "tune": {"task": "a", "budget": {"trials": 2}, "space": space}})
    searched = one.model_copy(update={"spec": one.spec.model_copy(update={"tasks": [*one.spec.tasks, tune]})})

    assert admit(searched, Anywhere()) == []
    assert [each.path for each in admit(searched, Hub())] == [("spec", "tasks", 1, "tune", "space")]


COUNTS = st.one_of(
    st.just("auto"),
    st.integers(1, 24),
    st.tuples(st.integers(1, 24), st.integers(1, 24)).map(lambda ends: {"min": min(ends), "max": max(ends)}),
)


@given(COUNTS, st.sampled_from([1, 6, 8, 24, 32, 60]), st.sampled_from(["auto", 1, 2, 8]), st.sampled_from([1, 2, 4]), st.integers(1, 16))
def test_a_machine_takes_a_number_that_a_hub_would_take(workers: Any, rows: int, micro: Any, tensor: int, gpus: int) -> None:
    """The least number of a range that one machine cannot hold is refused there; no machine takes a number of its own."""
    batch = {"global": rows, "micro": micro}
    task = job(workers, batch=batch, strategy={"zero": 0, "tensorParallel": tensor}).spec.tasks[0]
    try:
        chosen = choose_workers(task, Machine("h100-80gb", gpus))
    except BadInput:
        return
    assert chosen <= gpus
    assert task.training is not None
    assert task.training.divides_over(chosen)
    hub = worlds_of(task)
    assert chosen in hub or (workers == "auto" and chosen > max(hub)) or (isinstance(workers, dict) and len(hub) == 64)


@given(COUNTS, st.sampled_from([1, 6, 8, 24, 32, 60]), st.integers(1, 64))
def test_counts_divide_the_batch_and_come_largest_first(workers: Any, rows: int, usual: int) -> None:
    task = job(workers, rows=rows).spec.tasks[0]
    counts = worker_counts(task, usual=usual)

    assert list(counts) == sorted(counts, reverse=True)
    if not isinstance(workers, int):
        assert all(rows % count == 0 for count in counts)


def test_a_deadline_before_the_planned_end_is_remarked() -> None:
    def remarked(deadline: float | None, **fields: Any) -> list[str]:
        one = job(8, steps=20_000, **fields)
        return [
            f"{path[2]}: {words}"
            for path, words in remarks(one.model_copy(update={"spec": one.spec.model_copy(update={"deadline": deadline})}))
        ]

    assert remarked(None) == []
    assert remarked(1e9) == []
    assert "0: about" in remarked(60.0)[0]
    assert remarked(60.0, model={"name": "s3://b/model"}) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("s3://b/date={{ run.date }}/rows.jsonl", "{{ run.date }}"),
        ("s3://b/{{run.time - 1h | %H}}.jsonl", "{{run.time - 1h | %H}}"),
        ("s3://b/{{ run.date | %Y{%m }}", "{{ run.date | %Y{%m }}"),
        ("s3://b/{{ date }}/rows.jsonl", "{{ date }}"),
        ("s3://b/{run.date}/rows.jsonl", ""),
    ],
)
def test_an_expression_that_only_a_schedule_fills_is_refused_before_data_are_opened(source: str, found: str) -> None:
    one = job(data={"source": source})
    for refusals in (admit(one, Anywhere()), admit(one, Hub()), admit(one, SERVER)):
        assert [each.path for each in refusals] == ([("spec", "tasks", 0, "train", "data", "source")] if found else [])
        assert all(f"{found} has a value in runs of a Schedule only" in each.reason for each in refusals)
        assert all("kind: Schedule" in each.next_step for each in refusals)
    assert all(each.reason.startswith("spec.tasks.0.train.data.source: ") for each in admit(one, SERVER))


def test_what_is_said_to_a_model_and_commands_may_have_braces_of_their_own() -> None:
    """A Schedule writes them with `{{ "{{" }}`."""
    command = {"name": "list", "process": {"command": ["docker", "ps", "--format", "{{ run.name }}"]}}
    judge = {"model": {"name": QWEN}, "data": {"source": "s3://b/rows"}, "judge": {"rubric": "Does it explain {{ run.date }}?"}}
    judge["generation"] = {"schema": {"properties": {"name": {"const": "{{ run.name }}"}}, "name": "{{ run.name }}"}}
    spec = {"tasks": [command, {"name": "judge", "score": judge}]}
    assert admit(JobSpec.model_validate({"metadata": {"name": "j", "namespace": "default"}, "spec": spec}), Anywhere()) == []
