"""A job with a score task, from the command to the report: its time is predicted, compared, and corrects the next plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import write_model
from tests.integration.runtime.conftest import RunJoined, read_report, tuneyard_here, write_jobspec

TASK = {
    "name": "judge",
    "score": {
        "model": {"name": "wide"},
        "data": {"source": "questions.jsonl", "prompt": "question"},
        "generation": {"maxTokens": 16},
        "engine": {"batch": 8},
    },
    "resources": {"sku": ["cpu"]},
}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('history')}/runs.db"


@pytest.fixture(scope="module")
def job(inputs: Path) -> Path:
    """A model whose head size vLLM supports on CPUs, and 32 questions."""
    write_model(inputs / "wide", num_attention_heads=2, num_key_value_heads=1)
    rows = [json.dumps({"question": f"the cat sat on {number} mats"}) for number in range(32)]
    (inputs / "questions.jsonl").write_text("\n".join(rows) + "\n")
    return write_jobspec(inputs / "judge.yaml", TASK)


@pytest.fixture(scope="module")
def judged(job: Path, history: str, run_joined: RunJoined, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report's entry of the task."""
    out = tmp_path_factory.mktemp("judged") / "out"
    done = run_joined(job, out, TUNEYARD_HISTORY="on", TUNEYARD_HISTORY_URL=history)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = read_report(out)["tasks"]["judge"]
    assert told["details"]["speed"]["sentence"] in done.stdout
    return told


def test_the_report_has_predicted_beside_measured(judged: dict[str, Any]) -> None:
    speed = judged["details"]["speed"]
    assert speed["measured_s"] == judged["details"]["generation_s"] > 0
    assert speed["measured_tokens_per_s"] == judged["output_tokens_per_s"]
    assert speed["predicted_s"] == pytest.approx(sum(speed["terms_s"].values()))
    assert speed["expected_s"] > speed["predicted_s"]
    assert speed["runs"] == 0


def test_the_next_plan_is_corrected_by_the_run_and_knows_its_answers(job: Path, history: str, judged: dict[str, Any]) -> None:
    planned = tuneyard_here("plan", job, "-o", "json", TUNEYARD_HISTORY="on", TUNEYARD_HISTORY_URL=history)
    assert planned.returncode == 0, planned.stderr
    [row] = json.loads(planned.stdout)
    assert (row["rows"], row["corrected_by_runs"]) == (32, 1)
    if judged["cut_off"] < 16:  # random weights may not end an answer: then the run does not tell how long answers are
        assert row["output_tokens"] == pytest.approx(judged["details"]["speed"]["answer_tokens"])
        assert "as in the latest run of this task" in row["length_from"]
    else:
        assert row["output_tokens"] == 16
        assert "of the answers were cut off at their limit" in row["length_from"]
    assert "speeds of engines on cpu are corrected by 1 run of your history" in planned.stderr


def test_a_task_that_compares_likelihoods_alone_is_scored_and_has_its_speed(
    job: Path, inputs: Path, run_joined: RunJoined, tmp_path: Path
) -> None:
    assert job.exists()  # and the model beside it
    rows = [json.dumps({"question": "the cat", "options": ["sat", "ran"], "answer": "sat"}) for _ in range(8)]
    (inputs / "options.jsonl").write_text("\n".join(rows) + "\n")
    choose = {
        "name": "choose",
        "score": {
            "model": {"name": "wide"},
            "data": {"source": "options.jsonl", "prompt": "question", "reference": "answer", "chat": False},
            "choices": {"column": "options"},
            "metrics": ["acc", "acc_norm"],
        },
        "resources": {"sku": ["cpu"]},
    }
    done = run_joined(write_jobspec(inputs / "choose.yaml", choose), tmp_path / "out")
    assert done.returncode == 0, done.stderr
    told = read_report(tmp_path / "out")["tasks"]["choose"]
    assert (told["rows"], told["errors"], told["output_tokens"]) == (8, 0, 0)
    assert told["details"]["speed"]["predicted_s"] > 0
