"""An endpoint in a JobSpec: what stands beside it, what it must not hold, and that a key in a wrong place is not repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from tuneyard.api import Endpoint, ScoreTask, Task
from tuneyard.cli import main
from tuneyard.federation import worlds_of
from tuneyard.runtime.output import fingerprint

SECRET = "sk-proj-Abc123-do-not-show"
ENDPOINT = {"url": "https://api.example.com/v1/", "model": "small"}


def _task(**endpoint: Any) -> dict[str, Any]:
    return {"name": "judge", "score": {"data": {"source": "/rows.jsonl"}, "engine": {"endpoint": {**ENDPOINT, **endpoint}}}}


def test_an_endpoint_needs_neither_model_nor_gpu() -> None:
    task = Task.model_validate(_task())
    assert task.endpoint is not None
    assert task.endpoint.url == "https://api.example.com/v1"
    assert worlds_of(task) == (0,)


def test_without_an_endpoint_a_model_is_required() -> None:
    with pytest.raises(ValidationError, match="required field is missing"):
        ScoreTask.model_validate({"data": {"source": "/rows.jsonl"}})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model": {"name": "other"}}, "leave this model out"),
        ({"engine": {"endpoint": ENDPOINT, "batch": 8}}, "batch of a vLLM engine has no meaning at an endpoint"),
        ({"engine": {"endpoint": ENDPOINT, "tensorParallel": 2}}, "tensorParallel of a vLLM engine"),
    ],
)
def test_what_belongs_to_engines_of_the_job_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ScoreTask.model_validate({"data": {"source": "/rows.jsonl"}, "engine": {"endpoint": ENDPOINT}, **changes})


@pytest.mark.parametrize("sku", [["h100-80gb"], ["cpu", "a100-80gb"]])
def test_a_gpu_is_refused(sku: list[str]) -> None:
    with pytest.raises(ValidationError, match="the task needs no GPU"):
        Task.model_validate({**_task(), "resources": {"sku": sku}})
    assert Task.model_validate({**_task(), "resources": {"sku": ["cpu"]}})


@pytest.mark.parametrize(
    "url",
    [
        "api.example.com/v1",
        "ftp://example.com",
        "https://",
        "https://user:pass@example.com/v1",
        "https://example.com/v1?api-key=abc",
        "https://example.com/v1#x",
        "https://example.com:99999/v1",
        "https://exa mple.com",
        "https://example.com/\n",
        "https://[::1/v1",
        "",
    ],
)
def test_a_url_that_is_none_or_holds_secrets_is_refused(url: str) -> None:
    with pytest.raises(ValidationError):
        Endpoint.model_validate({**ENDPOINT, "url": url})


def test_an_expression_of_a_schedule_may_stand_in_a_url_with_its_blanks() -> None:
    url = "https://{{ run.name }}.example.com/{{ run.date - 1d | %Y/%m }}/v1"
    assert Endpoint.model_validate({**ENDPOINT, "url": url}).url == url
    for wrong in ("https://example.com/{{ run.name", "https://{{ run.name }} x/v1", "{{ run.name }}", "https://a:b@{{ run.name }}/v1"):
        with pytest.raises(ValidationError):
            Endpoint.model_validate({**ENDPOINT, "url": wrong})


@pytest.mark.parametrize("field", ["messages", "prompt", "stream", "n"])
def test_the_body_leaves_requests_whole(field: str) -> None:
    with pytest.raises(ValidationError, match=f"body cannot set {field}"):
        Endpoint.model_validate({**ENDPOINT, "body": {field: 1}})


@pytest.mark.parametrize("field", [{"apiKeyVariable": SECRET}, {"url": f"https://{SECRET}@example.com/v1"}])
def test_a_key_in_a_wrong_place_is_not_repeated(field: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "a"}, "spec": {"tasks": [_task(**field)]}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert main(["validate", str(tmp_path / "job.yaml")]) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert next(iter(field)) in said.err


def test_perplexity_is_refused_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = _task()
    task["score"] |= {"metrics": ["perplexity"], "data": {"source": str(tmp_path / "rows.jsonl"), "reference": "answer"}}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "a"}, "spec": {"tasks": [task]}}
    (tmp_path / "rows.jsonl").write_text('{"prompt": "a", "answer": "b"}\n')
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert main(["validate", str(tmp_path / "job.yaml")]) == 2
    assert "endpoints give likelihoods of their own answers alone" in capsys.readouterr().err


def test_plan_says_that_no_gpu_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "a"}, "spec": {"tasks": [_task()]}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    assert main(["plan", str(tmp_path / "job.yaml")]) == 0
    assert "small at https://api.example.com/v1 answers, so the task needs no GPU (sku cpu)" in " ".join(capsys.readouterr().out.split())


def test_another_endpoint_is_another_task_and_another_speed_is_not() -> None:
    """Engines change no result, so that a finished task counts whatever they are; an endpoint's URL and model do."""
    task, faster, other = (Task.model_validate(_task(**fields)) for fields in ({}, {"atOnce": 99, "timeout": 5}, {"model": "large"}))
    assert fingerprint(task) == fingerprint(faster) != fingerprint(other)
