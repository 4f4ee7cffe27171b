"""Rankers that score tables in a real Ray: every row once, in order, with the ranker's own probabilities, whatever is killed meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from tests.builders.rankers import write_clicks
from tests.builders.scores import score_request
from tests.integration.runtime.conftest import tuneyard_here
from tests.integration.scoring.conftest import a_worker_killed, score_until_killed

from tuneyard.ranking import EnsembleLayer, RankMetrics, batch_of, load, save
from tuneyard.ranking.click_log import config_of
from tuneyard.runtime.score.pool import score
from tuneyard.scoring import ScoreRequest
from tuneyard.scoring.ranker.work import RankedResult
from tuneyard.tracking import Event, Warned

ROWS, PARTS, SOME = 20_000, 80, 3_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ranker that takes a while, and clicks in two files with one without rows in between."""
    made = tmp_path_factory.mktemp("tables")
    torch.manual_seed(5)
    layer = EnsembleLayer(("attention", "dlrm", "convolution"), outputs=8)
    save(config_of(width=16, layers=(layer, layer)).build(), made / "model")
    first = write_clicks(made / "clicks" / "a.parquet", ROWS // 2)
    pq.write_table(pq.read_table(first).slice(0, 0), made / "clicks" / "b.parquet")
    write_clicks(made / "clicks" / "c.parquet", ROWS // 2, first_row=ROWS // 2)
    return made


def request(folder: Path, output: str, **changes: Any) -> ScoreRequest:
    fields: dict[str, Any] = {
        "model": {"name": str(folder / "model")},
        "data": {"source": str(folder / "clicks"), "keep": ["user", "clicked"]},
        "ranking": {"slices": ["device"], "windows": {"every": 6_000}},
        "rowsPerPart": ROWS // PARTS,
    }
    return score_request(folder, output, fields | changes, instances=2)


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, Any]:
    """Of the ranker itself in a plain loop."""
    rows = pa.concat_tables([pq.read_table(folder / "clicks" / name) for name in ("a.parquet", "c.parquet")])
    ranker, metrics, probabilities = load(folder / "model"), RankMetrics(), []
    with torch.inference_mode():
        for batch in rows.combine_chunks().to_batches(max_chunksize=1_000):
            tensors = batch_of(batch, ranker.config)
            logits = ranker(tensors)[:, 0]
            metrics.update(logits.numpy(), tensors["labels"][:, 0].numpy())
            probabilities.append(logits.sigmoid().numpy())
    return {"probabilities": np.concatenate(probabilities), "figures": metrics.figures(), "rows": rows}


def assert_every_row_once(result: RankedResult, expected: dict[str, Any]) -> None:
    """In input order, with the ranker's own probabilities and figures."""
    rows = pq.read_table(result.output)
    assert (result.rows, result.errors, result.status) == (ROWS, 0, "succeeded")
    assert rows.column("row").to_pylist() == list(range(ROWS))
    assert rows.column("user").to_pylist() == expected["rows"].column("user").to_pylist()
    assert np.allclose(rows.column("probability_clicked").to_numpy(), expected["probabilities"], atol=1e-6)
    figures = expected["figures"]
    assert result.metrics["normalised_entropy"] == pytest.approx(figures.normalised_entropy, rel=1e-6)
    assert result.metrics["auc"] == pytest.approx(figures.auc, abs=2 * figures.auc_error)
    assert [window["rows"] for window in result.judged["clicked"]["windows"]] == [6_000, 6_000, 6_000, 2_000]


@pytest.mark.usefixtures("ray_here")
def test_a_worker_killed_mid_run_costs_no_row(folder: Path, expected: dict[str, Any]) -> None:
    seen: list[Event] = []

    with a_worker_killed(folder / "out-killed", 5, "ray::RankerWor"):
        result = score(request(folder, "out-killed"), emit=seen.append)

    assert any(isinstance(event, Warned) and "ranker" in event.message and "died" in event.message for event in seen)
    assert result.details["ranker_deaths"] == 1
    assert result.rows_per_s > 0
    assert_every_row_once(result, expected)


@pytest.mark.long
@pytest.mark.usefixtures("ray_here")
def test_a_run_whose_driver_was_killed_goes_on(folder: Path, expected: dict[str, Any]) -> None:
    """In `make test`: the same of a run with engines, and `test_a_worker_killed_mid_run_costs_no_row` of tables."""
    asked = replace(request(folder, "out-resumed"), instances=1)
    assert score_until_killed(asked, 8) < PARTS

    result = score(replace(asked, attempt=2))

    assert result.rows_resumed >= 8 * ROWS // PARTS
    assert_every_row_once(result, expected)


def job(folder: Path, name: str, **score: Any) -> Path:
    body = {"model": {"name": "./model"}, "data": {"source": "clicks"}, "ranking": {"slices": ["device"]}, **score}
    tasks = [{"name": "judge", "score": body}]
    spec = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": name}, "spec": {"tasks": tasks}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    return folder / f"{name}.yaml"


def tuneyard(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("tuneyard")), *map(str, arguments)]
    # Without the fork server of these tests: a job would start its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TUNEYARD_HISTORY": "off", "TUNEYARD_WARM_SERVERS": ""}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600)


def test_a_job_of_a_ranker_runs_without_an_engine(folder: Path, expected: dict[str, Any]) -> None:
    ran = tuneyard("run", job(folder, "clicks", data={"source": "clicks", "limit": SOME}), "--out", folder / "run")

    assert ran.returncode == 0, ran.stderr
    report = json.loads((folder / "run" / "report.json").read_text())["tasks"]["judge"]
    assert (report["status"], report["rows"], report["errors"]) == ("succeeded", SOME, 0)
    assert report["rows_per_s"] > 0
    clicked = expected["rows"].column("clicked").to_numpy()[:SOME]
    metrics = RankMetrics()
    metrics.update(np.log(probabilities := expected["probabilities"][:SOME].astype(float)) - np.log1p(-probabilities), clicked)
    assert report["metrics"]["normalised_entropy"] == pytest.approx(metrics.figures().normalised_entropy, rel=1e-5)
    assert len(report["judged"]["clicked"]["slices"]["device"]) == 6
    assert "normalised entropy" in ran.stdout
    assert "rows per s" in ran.stdout
    page = (folder / "run" / "report.html").read_text()
    assert "rows/s" in page
    assert "<h3>Slices</h3>" in page
    assert not list((folder / "run" / "logs").glob("*warm-engines*"))


def test_a_renamed_column_is_refused_before_anything_starts(folder: Path) -> None:
    (folder / "renamed").mkdir()
    rows = pq.read_table(folder / "clicks" / "a.parquet").slice(0, 10)
    pq.write_table(
        rows.rename_columns(["users" if name == "user" else name for name in rows.column_names]), folder / "renamed" / "a.parquet"
    )

    path = job(folder, "renamed-column", data={"source": "renamed"})
    ran = tuneyard_here("run", path, "--out", folder / "never")

    assert ran.returncode == 2
    assert "no feature 'user'" in ran.stderr
    assert "did you mean users" in ran.stderr
    assert not (folder / "never").exists()
    assert "no feature 'user'" in (said := tuneyard_here("validate", path)).stdout + said.stderr
