"""Lengths of answers in `tuneyard plan` of a score task, from runs that are in history."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.cli.test_plan import LLAMA_8B, rows

from tuneyard.api import JobSpec
from tuneyard.tracking import TaskEvent
from tuneyard.tracking.history_sink import HistorySink
from tuneyard.tracking.sink import Warnings

ROWS, TOKENS = 100, 30


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and rows, and a history of its own."""
    monkeypatch.setenv("TUNEYARD_HISTORY", "on")
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{tmp_path}/history.db")
    for name in ("model", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(LLAMA_8B))
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps({'q': 'a' * 400})}\n" * ROWS)
    return tmp_path


def job(model: Any = "./model", train: Any = None, **generation: Any) -> dict[str, Any]:
    score = {"model": model if isinstance(model, dict) else {"name": model}, "data": {"source": "rows.jsonl", "prompt": "q"}}
    judge = {"name": "judge", "score": score | {"generation": {"maxTokens": 100, **generation}}, "resources": {"sku": ["h100-80gb"]}}
    tasks = [judge] if train is None else [{"name": "tune", "train": train}, judge | {"dependsOn": ["tune"]}]
    return {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "nightly"}, "spec": {"tasks": tasks}}


def ran(here: Path, spec: dict[str, Any], cut_off: int = 0, tokens: float = TOKENS) -> None:
    """A finished run in history, as the runtime writes it."""
    times = {"terms_s": {"decode": 9}, "measured_s": 9, "ready_terms_s": {"start": 60}, "measured_ready_s": 60}
    speed = {"sku": "h100-80gb", "answer_tokens": tokens, **times}
    result = {"rows": ROWS, "errors": 0, "cut_off": cut_off, "details": {"speed": speed}}
    sink = HistorySink(JobSpec.model_validate(spec), "", Warnings(), url=f"sqlite:///{here}/history.db")
    sink.record(TaskEvent(task="judge", state="started", kind="score"))
    sink.record(TaskEvent(task="judge", state="succeeded", kind="score", result=result))
    sink.close("succeeded", "")


def planned(here: Path, spec: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    (here / "job.yaml").write_text(yaml.safe_dump(spec))
    return rows(capsys, str(here / "job.yaml"), "--sku", "h100", "--workers", "8")[-1]


def test_answers_are_as_long_as_in_the_latest_run_of_the_same_model_and_settings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran(here, job(), tokens=50)
    ran(here, job(seed=1), cut_off=49)
    ran(here, job(model="./other"), tokens=70)
    row = planned(here, job(), capsys)
    assert row["output_tokens"] == TOKENS
    assert row["length_from"].endswith("answers of 30 tokens, as in the latest run of this task with this model and these settings")


@pytest.mark.parametrize(
    ("earlier", "cut_off", "why"),
    [
        (job(model="./other"), 0, "the latest run of this task had another model"),
        (job(maxTokens=30), 0, "the latest run of this task had other generation settings"),
        (job(stop=["."]), 0, "the latest run of this task had other generation settings"),
        (job(temperature=0.7), 0, "the latest run of this task had other generation settings"),
        (job(), 50, "in the latest run of this task 50% of the answers were cut off at their limit"),
    ],
)
def test_other_runs_do_not_tell_and_the_plan_says_why(
    here: Path, earlier: dict[str, Any], cut_off: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(here, earlier, cut_off)
    row = planned(here, job(), capsys)
    assert row["output_tokens"] == 100
    assert row["length_from"].endswith(f"answers of 100 tokens (generation.maxTokens), the most they can have: {why}")


def test_a_model_that_is_trained_in_another_way_is_another_model(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def trained(steps: int) -> dict[str, Any]:
        train = {"model": {"name": "./model"}, "data": {"source": "rows.jsonl"}, "steps": steps, "method": {"lora": {}}}
        return job(model={"from": "tune"}, train=train)

    ran(here, trained(10))
    assert planned(here, trained(10), capsys)["output_tokens"] == TOKENS
    assert planned(here, trained(1000), capsys)["length_from"].endswith("the latest run of this task had another model")
