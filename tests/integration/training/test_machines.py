"""Ranks on machines of their own: each with its own disk, as pods of a gang have, and nothing but storage in common."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.models import sentences, write_model
from tests.ranks import ROOT, results_in_ranks
from tests.servers import free_port

from tuneyard.api import TrainTask
from tuneyard.planning import Plan
from tuneyard.training import TrainRequest, TrainResult

RANK = """
import pickle, sys
from pathlib import Path
from tuneyard.training import train
Path(sys.argv[2]).write_bytes(pickle.dumps(train(pickle.loads(Path(sys.argv[1]).read_bytes()))))
"""


def request(folder: Path, **changes: object) -> TrainRequest:
    task = TrainTask.model_validate(
        {
            "model": {"name": str(folder / "model"), "init": "scratch"},
            "data": {"source": str(folder / "text.jsonl"), "maxLength": 64},
            "objective": "clm",
            "batch": {"global": 8},
            "steps": 4,
            "checkpoint": {"everySteps": 2},
        }
    )
    plan = Plan(sku="cpu", workers=2, zero=2, precision="fp32", attention="sdpa", micro_batch=2, grad_accum=2)
    made = TrainRequest(
        job="machines",
        name="train",
        task=task,
        plan=plan,
        model_uri=task.model.name or "",
        output=str(folder / "out"),
        scratch=str(folder / "disk"),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def on_machines(one: TrainRequest, folder: Path) -> TrainResult:
    """Rank 0's result, where every rank has a disk of its own."""
    port, running = free_port(), []
    for rank in range(one.plan.workers):
        given = folder / f"request-{rank}.pickle"
        given.write_bytes(pickle.dumps(replace(one, scratch=str(folder / f"disk-{rank}"))))
        place = {
            "RANK": rank,
            "WORLD_SIZE": one.plan.workers,
            "LOCAL_RANK": 0,
            "LOCAL_WORLD_SIZE": 1,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        environment = os.environ | {name: str(value) for name, value in place.items()} | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-W", "ignore", "-c", RANK, str(given), str(folder / f"result-{rank}.pickle")]
        running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    for process in running:
        _, words = process.communicate(timeout=400)
        assert process.returncode == 0, words[-3000:]
    result: TrainResult = pickle.loads((folder / "result-0.pickle").read_bytes())
    return result


def test_a_gang_with_a_disk_per_rank_trains_as_one_machine_does(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "text.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in sentences(200)))
    apart = on_machines(request(tmp_path, output=str(tmp_path / "apart")), tmp_path)
    (together,) = results_in_ranks([request(tmp_path, output=str(tmp_path / "together"))], 2)
    assert apart.losses == together.losses
