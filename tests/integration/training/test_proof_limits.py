"""A proof that hangs ends the run with a message, and loses nothing."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from tests.builders.checkpoints import committed
from tests.builders.models import cpu_plan, train_request, train_task
from tests.integration.training.conftest import Material
from tests.ranks.forks import Call, called
from tests.ranks.groups import group

from tuneyard.api import JobFailed
from tuneyard.parallel import Mesh
from tuneyard.training import TrainRequest, first_rank, train, trainer
from tuneyard.training.distributed import World
from tuneyard.training.proofs import before, limit, saved


def hang(*_: Any, **__: Any) -> None:
    threading.Event().wait(60)


def request_of(folder: Path, material: Material, method: str, workers: int = 1, **task: Any) -> TrainRequest:
    fields = {"method": {method: {}}, "steps": 2, "checkpoint": {"everySteps": 2}, **task}
    return train_request(folder, train_task(material.model, material.text, **fields), cpu_plan(workers=workers))


def test_a_saved_model_that_does_not_load_in_time_leaves_the_checkpoint(material: Material, tmp_path: Path) -> None:
    """Rank 0 loads; the other rank waits for it, and has the same error."""
    requests = {"model": request_of(tmp_path / "full", material, "full", workers=2)}
    requests["adapter"] = request_of(tmp_path / "lora", material, "lora", workers=2)
    places = group(2, per_machine=2)
    for told in called([Call(_hanging_rank, (list(requests.values()),), place) for place in places]):
        for name, late in zip(requests, told, strict=True):
            assert isinstance(late, JobFailed)
            assert f"the saved {name} was not compared" in late.cause
            assert "did not end in 2 seconds" in late.cause
            assert "proof: skip" in late.next_step
    assert committed(tmp_path / "full" / "out") == committed(tmp_path / "lora" / "out") == [2]
    assert not (tmp_path / "full" / "out" / "model").exists()

    resumed = train(request_of(tmp_path / "full", material, "full", proof="skip"))
    assert (resumed.status, resumed.resumed_from) == ("succeeded", 2)
    assert (tmp_path / "full" / "out" / "model" / "model.safetensors").is_file()


def _hanging_rank(requests: list[TrainRequest]) -> list[Any]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    answers: list[Any] = []
    with patch.object(limit, "LEAST_S", 2.0), patch.object(first_rank, "_BEAT_S", 0.1):
        for request in requests:
            with patch.object(saved.SavedProof, "_refuse_other_weights", hang):
                try:
                    answers.append(train(request))
                except JobFailed as error:
                    answers.append(error)
    dist.destroy_process_group()
    return answers


@pytest.mark.parametrize("hanging", ["check_positions", "refuse_mixed_rows"])
def test_tests_before_the_first_step_have_a_limit(
    hanging: str, material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit, "LEAST_S", 1.5)
    monkeypatch.setattr(before if hasattr(before, hanging) else trainer, hanging, hang)
    with pytest.raises(JobFailed, match=r"before its first step did not end in .*\n.*proof: skip"):
        train(request_of(tmp_path, material, "full"))


def test_the_limit_grows_with_what_is_loaded_and_computed() -> None:
    small, large = torch.nn.Linear(10, 10), torch.nn.Linear(1000, 1000)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert limit.limit_of(140e9) == pytest.approx(limit.LEAST_S + 8400)
    assert limit.LEAST_S < limit.limit_before(small, 100, cpu) < limit.limit_before(large, 100, cpu) < limit.limit_before(large, 9000, cpu)
    assert limit.limit_before(large, 9000, cuda) < limit.limit_before(large, 9000, cpu)


def test_ranks_wait_for_rank_0_longer_than_a_collective_may_last() -> None:
    assert called([Call(_slow_rank, (), place) for place in group(2, per_machine=2)]) == ["made", "made"]


def _slow_rank() -> str:
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=2))
    rank = dist.get_rank()
    world = World(rank, 2, rank, 2, torch.device("cpu"), Mesh(data=2))

    def make() -> str:
        time.sleep(4)  # twice what a collective may last
        return "made"

    with patch.object(first_rank, "_BEAT_S", 0.2):
        made = first_rank.made_on_first(world, make)
    dist.destroy_process_group()
    return made
