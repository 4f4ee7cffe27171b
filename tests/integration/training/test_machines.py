"""Ranks on machines of their own: each with its own disk, as pods of a gang have, and nothing but storage in common."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.builders.models import sentences, train_request, write_model
from tests.ranks.forks import Call, called
from tests.ranks.groups import group, results_in_ranks

from tuneyard.api import TrainTask
from tuneyard.planning import Plan
from tuneyard.training import TrainRequest, TrainResult, train


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
    return train_request(folder, task, plan, job="machines", **{"scratch": str(folder / "disk"), **changes})


def on_machines(one: TrainRequest, folder: Path) -> TrainResult:
    """Rank 0's result, where every rank has a disk of its own."""
    places = group(one.plan.workers, per_machine=1)
    asked = [replace(one, scratch=str(folder / f"disk-{rank}")) for rank in range(one.plan.workers)]
    result: TrainResult = called([Call(train, (request,), place) for request, place in zip(asked, places, strict=True)])[0]
    return result


def test_a_gang_with_a_disk_per_rank_trains_as_one_machine_does(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    (tmp_path / "text.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in sentences(200)))
    apart = on_machines(request(tmp_path, output=str(tmp_path / "apart")), tmp_path)
    (together,) = results_in_ranks([request(tmp_path, output=str(tmp_path / "together"))], 2)
    assert apart.losses == together.losses
