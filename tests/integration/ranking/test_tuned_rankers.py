"""A search over the settings of a rank task, and the rank task that takes what was found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.rankers import features, write_clicks
from tests.integration.runtime.conftest import read_report, tuneyard


def write_job(folder: Path, **tune: Any) -> Path:
    """A rank task on two workers, and a search of two runs over it."""
    clicks = write_clicks(folder / "clicks.parquet", rows=2_000)
    ranker = {
        "table": {"source": str(clicks)},
        "validationFraction": 0.2,
        "slices": ["device"],
        "features": features(),
        "label": "clicked",
        "model": {"width": 8, "outputs": 4, "layers": [["dlrm", "linear"]], "hidden": [16]},
        "batch": {"global": 256},
        "evaluation": {"everySteps": 4},
        "steps": 4,
    }
    search = {"task": "ranker", "budget": {"trials": 2, "rounds": 1}, "stepsPerTrial": 6, "space": {"tables.sharding": ["row"]}}
    tasks = [
        {"name": "ranker", "rank": ranker, "resources": {"workers": 2}},
        {"name": "search", "tune": search | tune},
    ]
    job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "clicks"}, "spec": {"tasks": tasks}}
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


@pytest.mark.timeout(900)
def test_a_rank_task_trains_with_what_a_search_has_found(tmp_path: Path) -> None:
    done = tuneyard("run", write_job(tmp_path), "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "rows/s" in done.stderr
    tasks = read_report(tmp_path / "out")["tasks"]
    found = tasks["search"]
    (own,), (trial,) = found["own"], found["trials"]
    assert trial["point"] == {"tables.sharding": "row"}
    assert min(own["tokens_per_s"], trial["tokens_per_s"], trial["predicted"]) > 0
    assert found["unit"] == "rows"
    assert tasks["ranker"]["steps"] == 4
    assert tasks["ranker"]["metrics"]["auc"] > 0, "trials hold out no rows, and the task itself does"
    assert not list((tmp_path / "out" / "search" / "trials").rglob("*.safetensors")), "trials leave no weights behind"


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"strategy.shardWithin": ["host"]}, "all workers are on one machine"),
        ({"model.attention": ["sdpa"]}, "model.attention cannot be tuned"),
    ],
)
def test_a_space_that_cannot_matter_is_refused_before_anything_is_measured(tmp_path: Path, space: dict[str, Any], said: str) -> None:
    done = tuneyard("run", write_job(tmp_path, space=space), "--out", tmp_path / "out")
    assert done.returncode != 0
    assert said in done.stderr
