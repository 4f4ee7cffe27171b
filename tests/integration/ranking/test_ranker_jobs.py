"""One job of rankers by the `tuneyard` command: raw columns, settings that a search has found, scores of the next day, a data service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders.rankers import LAYERS, MEASURED_FEATURES, MEASURED_STEPS, raw_clicks
from tests.integration.runtime.conftest import TUNEYARD, environment, read_report, write_jobspec

from tuneyard.cli import main

STEPS = 20


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("rankers")
    pq.write_table(raw_clicks(20_000), made / "days.parquet", row_group_size=3_000)
    pq.write_table(raw_clicks(3_000, first_row=20_000), made / "next-day.parquet", row_group_size=1_000)
    write_wide_days(made / "wide")
    return made


def searched(**tune: Any) -> list[dict[str, Any]]:
    """A ranker on two workers, and a search of two runs over it."""
    ranker = {
        "table": {"source": "days.parquet"},
        "validation": {"source": "next-day.parquet"},
        "transforms": [*MEASURED_STEPS, {"op": "sampling", "key": "name", "rate": 0.9}],
        "features": MEASURED_FEATURES,
        "label": "clicked",
        "negativeRate": 0.5,
        "model": {"width": 8, "outputs": 4, "layers": LAYERS, "ensemble": "weighted_sum"},
        "tables": {"exchange": "int8"},
        "batch": {"global": 512},
        "steps": STEPS,
        "slices": ["hour"],
    }
    search = {"task": "ranker", "budget": {"trials": 2, "rounds": 1}, "stepsPerTrial": 6, "space": {"tables.sharding": ["row"]}}
    return [on_two_workers("ranker", ranker), {"name": "search", "tune": search | tune}]


def on_two_workers(name: str, rank: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "rank": rank, "resources": {"workers": 2}}


def other_tasks() -> list[dict[str, Any]]:
    """The scores of the ranker; a ranker whose rows a service reads, and one without."""
    scores = {
        "model": {"from": "ranker"},
        "data": {"source": "next-day.parquet", "keep": ["name", "number0"]},
        "ranking": {"slices": ["hour"]},
    }
    stored = {
        "table": {"source": "wide"},
        "transforms": [{"op": "normalize", "inputs": ["age"], "output": "age"}],
        "features": {"dense": ["age"], "sparse": [{"name": "seen", "rows": 1_000}]},
        "label": "clicked",
        "model": {"width": 8, "outputs": 4, "layers": LAYERS, "hidden": [32]},
        "batch": {"global": 240},
        "steps": 24,
        "checkpoint": {"everySteps": 8},
        "optimizer": {"learningRate": 0.01, "schedule": "constant", "warmup": 0},
    }
    served = stored | {"service": {"minWorkers": 1, "maxWorkers": 2, "memoryGb": 1}}
    return [{"name": "scores", "score": scores}, on_two_workers("stored", stored), on_two_workers("served", served)]


def write_wide_days(folder: Path) -> None:
    """Three days of rows with 300 ids each: a split of 8 MiB for each 7,000 rows."""
    folder.mkdir()
    for day in range(3):
        chance, rows, ids = np.random.default_rng(day), 20_000, 300
        seen = pa.ListArray.from_arrays(np.arange(0, rows * ids + 1, ids, dtype=np.int32), chance.integers(0, 1_000, rows * ids))
        columns = {"age": chance.random(rows), "seen": seen, "clicked": chance.integers(0, 2, rows)}
        pq.write_table(pa.table(columns), folder / f"{day}.parquet", row_group_size=5_000)


@dataclass(frozen=True)
class Finished:
    """A job that has run to its end: its output, its tasks as the report has them, and what it printed on stderr."""

    out: Path
    tasks: dict[str, Any]
    stderr: str


@pytest.fixture(scope="module")
def finished(folder: Path) -> Finished:
    """Its first data worker is killed, where it starts before the end: a busy machine may be too slow for that."""
    command = [*TUNEYARD, "run", str(write_jobspec(folder / "job.yaml", *searched(), *other_tasks())), "--out", str(folder / "out")]
    with (folder / "stderr").open("w") as stderr:
        run = subprocess.Popen(command, env=environment(TUNEYARD_CACHE=str(folder / "cache")), stdout=subprocess.DEVNULL, stderr=stderr)
        killed = False
        while run.poll() is None:
            for pid in () if killed else _data_workers(run.pid):
                os.kill(pid, signal.SIGKILL)
                killed = True
            time.sleep(0.1)
    said = (folder / "stderr").read_text()
    assert run.returncode == 0, said
    return Finished(folder / "out", read_report(folder / "out")["tasks"], said)


def _data_workers(root: int) -> list[int]:
    """Processes of data workers below a process, as Ray names them."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if b"DataWorker" in (folder / "cmdline").read_bytes() and root in _ancestors(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def test_a_ranker_on_raw_columns_scores_the_next_day(folder: Path, finished: Finished) -> None:
    ranker, scores = finished.tasks["ranker"], finished.tasks["scores"]
    assert (scores["rows"], scores["errors"]) == (3_000, 0)
    assert scores["metrics"]["normalised_entropy"] == pytest.approx(ranker["metrics"]["normalised_entropy"], rel=1e-3)
    assert set(scores["judged"]["clicked"]["slices"]["hour"]) == set(ranker["details"]["slices"]["clicked"]["hour"])
    [output] = finished.out.glob("scores/**/parts")
    kept, rows = pq.read_table(output), pq.read_table(folder / "next-day.parquet")
    assert kept.column("name").to_pylist() == rows.column("name").to_pylist()
    assert "weighted_sum" in (ranker_folder(finished) / "README.md").read_text()
    normalize = json.loads((ranker_folder(finished) / "ranker.json").read_text())["transforms"][-1]
    assert normalize["mean"] == ranker["details"]["normalized"]["number1"]["mean"]
    assert kept.column("number0").to_pylist() == rows.column("number0").to_pylist()  # as it is in the table: the step is the ranker's


def ranker_folder(finished: Finished) -> Path:
    [config] = finished.out.glob("ranker/**/ranker.json")
    return config.parent


def test_a_rank_task_trains_with_what_a_search_has_found(finished: Finished) -> None:
    found = finished.tasks["search"]
    (own,), (trial,) = found["own"], found["trials"]
    assert trial["point"] == {"tables.sharding": "row"}
    assert min(own["tokens_per_s"], trial["tokens_per_s"], trial["predicted"]) > 0
    assert found["unit"] == "rows"
    assert "rows/s" in finished.stderr
    assert finished.tasks["ranker"]["steps"] == STEPS
    assert finished.tasks["ranker"]["metrics"]["auc"] > 0, "trials hold out no rows, and the task itself does"
    assert not list((finished.out / "search" / "trials").rglob("*.safetensors")), "trials leave no weights behind"


def test_a_task_with_a_service_ends_as_one_without(finished: Finished) -> None:
    """The rows that a data worker has made are tested in test_ingestion.py. Both scale ages by all rows of the table."""
    stored, served = finished.tasks["stored"], finished.tasks["served"]
    assert served["details"]["normalized"] == stored["details"]["normalized"]
    assert served["details"]["normalized"]["age"]["values"] == 60_000
    assert served["losses"] == stored["losses"]
    assert served["details"]["data_service"]["started"] >= 1
    assert served["details"]["data"]["streamed"]


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"strategy.shardWithin": ["host"]}, "all workers are on one machine"),
        ({"model.attention": ["sdpa"]}, "cannot be tuned for the rank task"),
    ],
)
def test_a_space_that_cannot_matter_is_refused_before_anything_is_measured(
    folder: Path, space: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    job = write_jobspec(folder / "refused.yaml", *searched(space=space))
    assert main(["run", str(job), "--out", str(tmp_path / "out")]) != 0
    assert said in capsys.readouterr().err
