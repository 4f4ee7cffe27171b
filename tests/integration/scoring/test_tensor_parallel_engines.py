"""An engine of two ranks, by `tuneyard run`: it answers as an engine of one does, whatever dies, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from tests.models import sentences, write_model

from tuneyard.api import Generation, ScoreTask
from tuneyard.catalog.built import model_shape_of
from tuneyard.catalog.config_reader import config_in
from tuneyard.scoring.engine import VllmEngine
from tuneyard.scoring.ranks import RankFailed
from tuneyard.scoring.settings import resolve_engine

ROWS = 32


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tensor-parallel")
    write_model(made / "model", hidden_size=128, num_attention_heads=4, num_key_value_heads=2)
    texts = sentences(2 * ROWS)
    rows = [{"question": texts[i], "answer": texts[ROWS + i]} for i in range(ROWS)]
    (made / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return made


def score_task(folder: Path, degree: int) -> dict[str, Any]:
    return {
        "model": {"name": str(folder / "model")},
        "data": {"source": str(folder / "rows.jsonl"), "prompt": "question", "reference": "answer"},
        "generation": {"maxTokens": 32, "temperature": 0},
        "engine": {"batch": 8, "tensorParallel": degree},
        "metrics": ["rouge_l", "perplexity"],
        "rowsPerPart": 8,
    }


def rows_of(out: Path, task: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(out / task / "parts").to_pylist()
    return rows


def left_behind() -> set[str]:
    """Names in shared memory, and what engines keep in /tmp."""
    return set(os.listdir("/dev/shm")) | {path.name for path in Path("/tmp").glob("ty-engine-*")}


def test_a_killed_rank_costs_no_row_and_two_ranks_answer_like_one(folder: Path) -> None:
    tasks = [{"name": f"ranks-{degree}", "score": score_task(folder, degree)} for degree in (2, 1)]
    spec = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "judges"}, "spec": {"tasks": tasks}}
    (folder / "job.yaml").write_text(json.dumps(spec))
    out, before = folder / "out", left_behind()
    run = subprocess.Popen([Path(sys.executable).with_name("tuneyard"), "run", str(folder / "job.yaml"), "--out", str(out)])
    while not list((out / "ranks-2" / "parts").glob("*.parquet")):
        assert run.poll() is None, "the run ended before a rank could be killed"
        time.sleep(0.02)
    started = psutil.Process(run.pid).children(recursive=True)
    ranks = [process for process in started if process.name().startswith("VLLM::Worker_TP")]
    assert len(ranks) == 2

    ranks[1].kill()

    assert run.wait() == 0
    report = json.loads((out / "report.json").read_text())["tasks"]
    two, one = report["ranks-2"], report["ranks-1"]
    assert two["details"]["engine_deaths"] == 1
    assert (two["rows"], two["errors"]) == (ROWS, 0)
    assert [row["output"] for row in rows_of(out, "ranks-2")] == [row["output"] for row in rows_of(out, "ranks-1")]
    assert two["metrics"] == pytest.approx(one["metrics"], rel=1e-4)
    assert 0 < two["mfu"] < 1
    psutil.wait_procs(started, timeout=20)
    assert [process for process in started if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
    assert left_behind() <= before


def test_why_a_rank_could_not_load_is_told(folder: Path) -> None:
    """The engine's process knows only that a rank ended; the cause is in the rank's."""
    task = ScoreTask.model_validate(score_task(folder, 2))
    settings = resolve_engine(task, folder / "model", model_shape_of(config_in(folder / "model")), None, sku="cpu")
    weights = folder / "model" / "model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[: len(kept) // 2])
    try:
        with pytest.raises(RankFailed, match=r"(?i)incomplete|header|safetensor"):
            VllmEngine(settings, Generation())
    finally:
        weights.write_bytes(kept)
