"""A search over settings of engines, by `tuneyard run`: it measures, confirms, and the score task takes what was found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.builders.models import sentences, write_model

from tuneyard.tracking.history import History

TUNEYARD = str(Path(sys.executable).with_name("tuneyard"))


@pytest.mark.usefixtures("engine_server")
def test_a_search_finds_a_faster_batch_and_the_task_takes_it(tmp_path: Path) -> None:
    """One answer at a time is slower than eight. Four runs: the file's settings, the other, and both again as a pair. A batch that cannot
    work is named with the reason."""
    write_model(tmp_path / "model", hidden_size=128, num_attention_heads=2, num_key_value_heads=1)
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"question": text}) + "\n" for text in sentences(12)))
    score = {
        "model": {"name": "./model"},
        "data": {"source": "rows.jsonl", "prompt": "question"},
        "generation": {"maxTokens": 24},
        "engine": {"batch": 1},
    }
    space = {"engine.batch": [8], "engine.kvCache": ["64Mi", "900Gi"]}
    search = {"task": "judge", "budget": {"trials": 4, "rounds": 1}, "rowsPerTrial": 8, "space": space}
    tasks = [{"name": "judge", "score": score}, {"name": "search", "tune": search}]
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "nightly"}, "spec": {"tasks": tasks}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    url, out = f"sqlite:///{tmp_path}/runs.db", tmp_path / "out"
    ran = subprocess.run(
        [TUNEYARD, "run", str(tmp_path / "job.yaml"), "--out", str(out)],
        capture_output=True,
        text=True,
        env={**os.environ, "TUNEYARD_HISTORY": "on", "TUNEYARD_HISTORY_URL": url},
        timeout=1200,
    )
    assert ran.returncode == 0, ran.stderr
    assert "engine.kvCache 900Gi is not tried" in ran.stderr

    told = json.loads((out / "report.json").read_text())["tasks"]
    found = told["search"]
    assert (found["unit"], found["best"], len(found["pairs"])) == ("tokens", {"engine.batch": 8, "engine.kvCache": "64Mi"}, 1)
    assert found["gain"] > 0
    assert told["judge"]["details"]["engine"]["batch"] == 8
    assert told["judge"]["rows"] == 12
    assert not list((out / "search" / "trials").rglob("*.parquet")), "answers of trials are deleted"

    history = History.open(url)
    runs = [run for run in history.score_runs() if run["task"].startswith("search/")]
    history.close()
    assert [run["result"]["rows"] for run in runs] == [8] * 4
    assert all(run["result"]["details"]["speed"]["measured_s"] > 0 for run in runs), "trials teach what engines take"
    assert "samples" not in runs[0]["result"], "rows stay out of history"
