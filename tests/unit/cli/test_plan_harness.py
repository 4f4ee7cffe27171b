"""`tuneyard plan` of a score task whose data are tasks of lm-evaluation-harness: nothing is counted, and it says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.builders.models import tiny_config

from tuneyard.cli import main


def test_the_plan_says_that_the_harness_makes_the_requests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(tiny_config("llama", hidden_size=128, num_attention_heads=2).to_json_string())
    (tmp_path / "rows.jsonl").write_text("{}\n")  # beside the job, and not its data
    score = {"model": {"name": "./model"}, "data": {"lmEval": {"tasks": ["arc_easy"], "limit": 5}}}
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "exam"}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**job, "spec": {"tasks": [{"name": "exam", "score": score}]}}))
    assert main(["plan", str(tmp_path / "job.yaml"), "--sku", "cpu", "-o", "json"]) == 0
    said = capsys.readouterr()
    [row] = json.loads(said.out)
    assert row["rows"] is None
    assert "lm-evaluation-harness makes its requests when the task runs" in row["length_from"]
    assert "counting" not in said.err
