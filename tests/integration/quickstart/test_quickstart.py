"""`make quickstart`, as a person sees it: one command, a report, and a model that has learnt something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
HANGS_AFTER_S = 2400
"""No measure of speed (docs/tried.md has that): a run of this length on the busiest machine has stopped doing anything."""

pytestmark = pytest.mark.timeout(HANGS_AFTER_S + 60)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("quickstart") / "out"
    compiled = out.with_name("compiled")
    command = [str(Path(sys.executable).with_name("tuneyard")), "run", str(ROOT / "jobspecs/quickstart.yaml"), "--out", str(out)]
    # With fork servers of its own, as people have it, whatever other tests share.
    environment = {**os.environ, "TUNEYARD_HISTORY": "off", "TUNEYARD_WARM_SERVERS": "", "TORCHINDUCTOR_CACHE_DIR": str(compiled)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANGS_AFTER_S)
    assert done.returncode == 0, done.stderr
    assert "start cold" not in done.stderr
    assert not list(compiled.rglob("*.cpp")), "seconds of C++ at each start in a new pod"
    path = Path(done.stdout.splitlines()[-1])
    assert path == out / "report.json"
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_every_task_succeeds(report: dict[str, Any]) -> None:
    assert report["status"] == "succeeded"
    assert {task["status"] for task in report["tasks"].values()} == {"succeeded"}


def test_the_tuned_model_answers_right_where_the_base_cannot(report: dict[str, Any]) -> None:
    base, tuned = (report["tasks"][name] for name in ("score-base", "score-tuned"))
    assert base["rows"] == tuned["rows"] == 64
    assert base["errors"] == tuned["errors"] == 0
    assert base["metrics"]["exact_match"] == 0
    assert tuned["metrics"]["exact_match"] >= 0.6, "docs/quickstart.md promises most of them"
    assert tuned["metrics"]["perplexity"] < 0.1 * base["metrics"]["perplexity"]


def test_the_two_models_are_compared_row_by_row(report: dict[str, Any]) -> None:
    (comparison,) = report["comparisons"]
    assert (comparison["task"], comparison["against"], comparison["rows"]) == ("score-tuned", "score-base", 64)
    figures = {each["figure"]: each for each in comparison["figures"]}
    assert set(figures) == {"exact_match", "rouge_l", "loss", "perplexity"}
    assert all(each["real"] and each["better"] for each in figures.values())
    assert figures["perplexity"]["value"] == pytest.approx(report["tasks"]["score-tuned"]["metrics"]["perplexity"])
    assert comparison["better_rows"][0]["output"] == comparison["better_rows"][0]["reference"]


def test_the_tuned_model_ends_by_itself(report: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    scored = report["tasks"]["score-tuned"]
    assert scored["empty"] == scored["looping"] == 0
    ends = [row["finish_reason"] for row in pq.read_table(scored["output"]).to_pylist()]
    assert ends.count("stop") >= 62, "not at maxTokens"


def test_training_reports_its_figures(report: dict[str, Any]) -> None:
    for name in ("base", "tune"):
        task = report["tasks"][name]
        assert task["world_size"] == 2
        assert task["losses"][-1] < task["losses"][0]
        assert task["mfu"] > 0
        assert (Path(task["artifacts"]["model"]) / "model.safetensors").exists()


def test_the_scored_rows_can_be_read(report: dict[str, Any]) -> None:
    import pyarrow.parquet as pq

    scored = report["tasks"]["score-tuned"]
    rows = pq.read_table(scored["output"]).to_pylist()
    assert len(rows) == scored["rows"]
    typical, *first = scored["samples"]
    assert typical["typical"]
    assert all(sample["output"] == rows[sample["row"]]["output"] for sample in scored["samples"])
    assert [sample["row"] for sample in first] == [row for row in range(5) if row != typical["row"]]
    assert scored["empty"] == sum(not row["output"].strip() for row in rows)
