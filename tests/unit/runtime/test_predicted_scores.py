"""Predicted beside measured after a score run, and what past runs say about the next one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuneyard.api import ScoreTask
from tuneyard.catalog.cpu import machine_key
from tuneyard.planning.engines import UNCORRECTED
from tuneyard.runtime.score.past import PastScores
from tuneyard.runtime.score.predicted import promise_of, speed_of
from tuneyard.scoring.request import ScoreRequest

CONFIG = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8} | {
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}


@pytest.fixture
def asked(tmp_path: Path) -> ScoreRequest:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(CONFIG))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"q": "a" * 400}) + "\n" for _ in range(640)))
    data = {"source": str(tmp_path / "rows.jsonl"), "prompt": "q"}
    task = ScoreTask.model_validate({"model": {"name": "m"}, "data": data, "generation": {"maxTokens": 100}})
    model = str(tmp_path / "model")
    return ScoreRequest(job="nightly", name="judge", task=task, model_uri=model, output="", scratch="", sku="h100-80gb")


def result(generation_s: float, **changes: Any) -> dict[str, Any]:
    """640 rows with 100 tokens in and 100 out."""
    fields = {"rows": 640, "errors": 0, "rows_resumed": 0, "cut_off": 0, "input_tokens": 64_000, "output_tokens": 64_000}
    details = {"generation_s": generation_s, "load_s": 90.0, "engine": {"batch": 64}, "evaluated_tokens": 0}
    return {**fields, "output_tokens_per_s": 64_000 / generation_s, "wall_s": generation_s + 90, "details": details, **changes}


def compared(request: ScoreRequest, past: PastScores, generation_s: float, **changes: Any) -> dict[str, Any]:
    promise = promise_of(request, past)
    assert promise is not None
    found = speed_of(request, result(generation_s, **changes), promise)
    assert found is not None
    return found


def past_of(*speeds: dict[str, Any]) -> PastScores:
    return PastScores(tuple({"job": "nightly", "task": "judge", "spec": {}, "speed": speed, "cut_off": 0.0} for speed in speeds))


def test_the_report_has_the_predicted_time_beside_the_measured_one(asked: ScoreRequest) -> None:
    found = compared(asked, PastScores(), 20.0)
    assert found["predicted_s"] == pytest.approx(sum(found["terms_s"].values()))
    assert found["predicted_tokens_per_s"] == pytest.approx(64_000 / found["predicted_s"])
    assert (found["measured_s"], found["measured_tokens_per_s"], found["answer_tokens"]) == (20.0, 3200, 100)
    assert found["expected_s"] == pytest.approx(found["predicted_s"] + found["predicted_ready_s"], rel=0.01)
    assert found["sentence"].startswith("the rows took 20.0 s; predicted for their lengths: ")
    assert found["sentence"].endswith("it took 1 min 50 s")


def test_past_runs_on_the_same_kind_bring_the_prediction_to_what_was_measured(asked: ScoreRequest) -> None:
    first = compared(asked, PastScores(), 40.0)
    assert abs(first["predicted_s"] / 40 - 1) > 0.5
    past = past_of(first, first, first)
    later = compared(asked, past, 40.0)
    assert later["predicted_s"] == pytest.approx(40, rel=0.1)
    assert later["predicted_ready_s"] == pytest.approx(90)
    assert later["terms_s"] == first["terms_s"], "what later corrections are made from has no correction"
    assert "corrected by 3 earlier runs" in later["sentence"]
    assert past.correction("a100-80gb") == UNCORRECTED


def test_runs_on_cpu_are_of_this_machine_alone(asked: ScoreRequest) -> None:
    speed = {**compared(asked, PastScores(), 40.0), "sku": "cpu"}
    assert past_of({**speed, "machine": machine_key()}).correction("cpu").runs == 1
    assert past_of({**speed, "machine": "cpu-another"}).correction("cpu").runs == 0


def test_an_attempt_without_new_rows_is_not_compared(asked: ScoreRequest) -> None:
    promise = promise_of(asked, PastScores())
    assert promise is not None
    assert speed_of(asked, result(20.0, rows_resumed=640), promise) is None
    assert speed_of(asked, result(1.0, details={"generation_s": 0.0, "load_s": 0.0, "engine": {}}), promise) is None


def test_a_model_that_cannot_be_planned_has_no_promise(asked: ScoreRequest, tmp_path: Path) -> None:
    (tmp_path / "model" / "config.json").write_text("{}")
    assert promise_of(asked, PastScores()) is None
