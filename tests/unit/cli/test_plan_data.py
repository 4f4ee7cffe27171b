"""Data workers in `tuneyard plan`, as a user sees them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuneyard.cli import main
from tuneyard.planning import past_rates
from tuneyard.tracking import TaskEvent
from tuneyard.tracking.history_sink import HistorySink
from tuneyard.tracking.sink import Warnings

JOB = """\
apiVersion: tuneyard.dev/v1alpha1
kind: JobSpec
metadata: {{name: small}}
spec:
  tasks:
  - name: train
    train:
      model: {{name: ./model}}
      data: {data}
      objective: clm
      batch: {{global: 512}}
      epochs: 2
    resources: {{sku: [h100-80gb], workers: 16}}
"""
SMALL = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 8} | {
    "intermediate_size": 4096,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
WriteJob = Callable[..., Path]


@pytest.fixture
def write_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteJob:
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(SMALL))
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": "some words of a text " * 40}) + "\n" for _ in range(5000)))

    def write(**data: Any) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(JOB.format(data=json.dumps({"source": "texts.jsonl", "pack": True, "streaming": True} | data)))
        return path

    return write


def plan_of(capsys: pytest.CaptureFixture[str], job: Path, *options: str) -> dict[str, Any]:
    assert main(["plan", str(job), *options, "-o", "json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    return dict(found)


def said(capsys: pytest.CaptureFixture[str], job: Path, *options: str) -> str:
    assert main(["plan", str(job), *options]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_data_that_are_prepared_before_need_no_workers(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    for data in ({"streaming": None}, {"streaming": False}):  # a small set is not streamed unless asked for
        assert plan_of(capsys, write_job(**data))["data"] is None
    assert "data worker" not in said(capsys, write_job(streaming=False))


def test_without_workers_ranks_wait_and_the_plan_says_what_to_set(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    row = plan_of(capsys, write_job(workers=0))
    data = row["data"]
    assert data["tokens_per_s"] == pytest.approx(row["tokens_per_s"], rel=0.03), "rows are full"
    assert data["rate_from"] == "by benchmarks/data_worker_rate.py"
    assert data["asked"] == data["alone"]
    assert data["alone"]["stall"] > 0.1 > data["needed"]["stall"] == 0
    assert data["advice"].startswith("set data.")
    assert str(data["needed"]["workers"]) in data["advice"]
    assert data["wait_s"] == pytest.approx(data["first_epoch_s"] * data["alone"]["stall"] / (1 - data["alone"]["stall"]))
    assert data["first_epoch_s"] < 0.6 * row["duration_s"], "rows are kept for the second epoch"
    text = said(capsys, write_job(workers=0))
    assert f"without any, steps of the first epoch wait for rows {data['alone']['stall']:.0%} of the time" in text
    assert data["advice"] in text


def test_what_is_set_as_the_plan_says_leaves_no_wait(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    workers = plan_of(capsys, write_job(workers=0))["data"]["needed"]["workers"]
    job = write_job(service={"maxWorkers": workers, "cpus": 2, "memoryGb": 3})
    data = plan_of(capsys, job)["data"]
    assert (data["asked"]["stall"], data["advice"]) == (0, "")
    assert (data["asked"]["cores"], data["asked"]["memory_gb"]) == (2 * workers, 3 * workers)
    assert f"with the {workers} of the task, steps do not wait for rows" in said(capsys, job)


def test_cores_of_a_service_cost_what_a_core_costs_and_are_not_guessed(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(service={"maxWorkers": 4})
    assert plan_of(capsys, job)["data"]["asked"]["cost_per_hour"] is None
    assert "no price of a core is known: give --core-price to see the cost" in said(capsys, job)
    asked = plan_of(capsys, job, "--core-price", "0.05")["data"]["asked"]
    assert asked["cost_per_hour"] == pytest.approx(0.2)
    assert asked["cost_of_first_epoch"] > 0
    beside = plan_of(capsys, write_job(workers=2))["data"]["asked"]
    assert beside["cost_per_hour"] == 0, "their cores are those of the machines that are paid anyway"


def test_a_price_that_is_none_is_refused(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(write_job()), "--core-price", "-1"]) == 2
    assert "--core-price -1.0 is not a price" in capsys.readouterr().err


def test_own_runs_correct_what_a_worker_makes(
    write_job: WriteJob, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run on a slow store, kept in history with the figures of its report."""
    from tests.unit.tuning.test_settings import row, some_job

    url = f"sqlite:///{tmp_path}/history.db"
    monkeypatch.setenv("TUNEYARD_HISTORY", "on")
    monkeypatch.setenv("TUNEYARD_HISTORY_URL", url)
    stream = {"tokens": 5_000_000, "seconds": {"storage": 90.0, "tokenising": 10.0}, "waited_s": 50.0}
    result = {"tokens_per_s": 1000.0, "details": {"stream": stream, "data": {"format": "text"}}}
    sink = HistorySink(some_job(), "", Warnings(), url=url)
    sink.record(TaskEvent(task="train", state="started", kind="train", settings=row()))
    sink.record(TaskEvent(task="train", state="succeeded", kind="train", result=result))
    sink.close("succeeded", "")
    data = plan_of(capsys, write_job())["data"]
    assert (data["worker_tokens_per_s"], data["rate_from"]) == (50_000, "by 1 run of your history")
    assert past_rates([{"result": result}])["text"].tokens_per_s == 50_000


def test_data_of_unknown_size_may_be_streamed(write_job: WriteJob, capsys: pytest.CaptureFixture[str]) -> None:
    job = write_job(source="s3://nowhere/texts", streaming=None, workers=0)
    job.write_text(job.read_text().replace("epochs: 2", "steps: 100"))
    assert plan_of(capsys, job)["data"]["streamed"] == "maybe"
    assert "if the data take too long to prepare, they are streamed" in said(capsys, job)
