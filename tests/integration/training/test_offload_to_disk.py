"""States and weights on a local disk (`nvme`): the losses of states in memory, through resumes without the disk and SIGKILL."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.builders.checkpoints import stop_after
from tests.builders.models import cpu_plan, train_request, train_task, write_model, write_text
from tests.ranks.groups import results_in_ranks
from tests.ranks.kills import Case, run_case

from tuneyard.api import BadInput
from tuneyard.training import TrainRequest, deepspeed_config, train
from tuneyard.training.offload_disk import on_disk

pytestmark = [pytest.mark.timeout(1800), pytest.mark.usefixtures("disk_code_compiled")]

WIDE = {"hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 4, "num_key_value_heads": 2}
"""DeepSpeed swaps nothing below 1 MiB."""
EVERY, STEPS = 1, 4
"""The state of the optimizer shows in the second step after a resume."""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("disk")
    yield folder
    assert list(folder.iterdir()) == []  # whatever was offloaded is gone with its rank


def on(disk: Path) -> dict[str, Any]:
    return {"zero": 3, "offload_optimizer": "nvme", "offload_parameters": "nvme", "nvme_path": str(disk)}


def test_a_run_goes_on_from_disk_to_memory_and_back(disk: Path, tmp_path: Path) -> None:
    model, text = write_model(tmp_path / "model", **WIDE), write_text(tmp_path / "text.jsonl")
    task = train_task(model, text, steps=STEPS, checkpoint={"everySteps": EVERY, "keep": 9})

    def request(name: str, **plan: Any) -> TrainRequest:
        return train_request(tmp_path / name, task, cpu_plan(workers=2, **plan))

    in_memory, offloaded = results_in_ranks([request("memory", zero=3), request("disk", **on(disk))], workers=2)
    assert offloaded.losses == pytest.approx(in_memory.losses, rel=1e-4)

    for step, plan in ((1, {"zero": 3}), (2, on(disk))):
        shutil.copytree(tmp_path / "disk", tmp_path / f"from-{step}")
        stop_after(step, tmp_path / f"from-{step}" / "out")
        (resumed,) = results_in_ranks([request(f"from-{step}", **plan)], workers=2)
        assert resumed.resumed_from == step
        assert resumed.losses == pytest.approx(in_memory.losses, rel=1e-4)


def test_states_that_come_and_go_by_sub_group_are_saved_and_resumed(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepspeed_config, "SWAPPED_ELEMENTS", 1_000_000)  # several groups, as a large model has
    model, text = write_model(tmp_path / "model", **WIDE), write_text(tmp_path / "text.jsonl")
    request = train_request(tmp_path, train_task(model, text, steps=3, checkpoint={"everySteps": 1, "keep": 9}), cpu_plan(**on(disk)))
    whole = train(request)
    stop_after(1, tmp_path / "out")

    resumed = train(request)

    assert resumed.resumed_from == 1
    assert resumed.losses == pytest.approx(whole.losses, rel=1e-4)  # the sums of CPU Adam differ in the last digits


@pytest.mark.long
def test_killed_while_its_states_are_on_a_disk_it_goes_on_with_the_losses_of_a_run_left_alone(disk: Path, tmp_path: Path) -> None:
    """In `make test`: `test_a_run_goes_on_from_disk_to_memory_and_back`, and kills under ZeRO 3 in `test_kills.py`."""
    outcome = run_case(Case(folder=str(tmp_path), plan=on(disk), shape=WIDE, kills=2, seed=3, steps=12))

    assert outcome.kills == 2
    assert outcome.difference < 1e-4
    with on_disk(cpu_plan(**on(disk))):  # removes what the killed ranks have left, as the next attempt on the machine does
        pass


def test_a_path_that_cannot_be_a_folder_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    model, text = write_model(tmp_path / "model"), write_text(tmp_path / "text.jsonl")

    with pytest.raises(BadInput, match=r"nothing can be offloaded to .*file/below: Not a directory") as refused:
        train(train_request(tmp_path, train_task(model, text), cpu_plan(**on(tmp_path / "file" / "below"))))

    assert "nvmePath" in (refused.value.next_step or "")


def test_a_disk_that_is_too_small_is_refused(disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, text = write_model(tmp_path / "model", **WIDE), write_text(tmp_path / "text.jsonl")
    usage = shutil.disk_usage(disk)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=100_000_000))

    with pytest.raises(BadInput, match=r"takes 0\.\d GB on this machine, and 0\.1 GB are free"):
        train(train_request(tmp_path, train_task(model, text), cpu_plan(**on(disk))))
