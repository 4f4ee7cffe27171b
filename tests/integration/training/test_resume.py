"""A run that was interrupted goes on as if it had not been; a checkpoint counts once its manifest is there."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests.builders.checkpoints import checkpoint, saves_in_turn, stop_after
from tests.builders.models import cpu_plan, train_request, train_task, write_model
from tests.integration.training.conftest import Material
from tests.ranks.groups import results_in_ranks, stopping_at
from tests.ranks.tensor_training import mesh_request
from tests.servers.installed import S3

from tuneyard.api import BadInput
from tuneyard.storage import open_store
from tuneyard.tracking import remarks_of
from tuneyard.tracking.events import Event, Stage, Warned
from tuneyard.training import TrainRequest, TrainResult, train


def request_of(folder: Path, material: Material, *, plan: dict[str, Any] | None = None, **task: Any) -> TrainRequest:
    fields = {"checkpoint": {"everySteps": 2, "keep": 3}, **task}
    return train_request(folder, train_task(material.model, material.text, **fields), cpu_plan(**(plan or {})))


def interrupted_after(step: int, whole: Path, folder: Path) -> None:
    """What the output of a run would be, had it been stopped after the checkpoint of `step`."""
    shutil.copytree(whole, folder)
    stop_after(step, folder / "out")


@pytest.fixture(scope="module")
def whole(material: Material, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainResult, Path]:
    """A run that nothing interrupts, and its folder, of which tests take copies."""
    folder = tmp_path_factory.mktemp("whole")
    with saves_in_turn():
        return train(request_of(folder, material)), folder


@pytest.mark.parametrize(
    ("plan", "task"),
    [
        ({}, {}),
        ({}, {"method": {"lora": {"rank": 4, "dropout": 0.2}}}),
        ({"zero": 2}, {}),
        ({"zero": 3}, {"method": {"lora": {"rank": 4}}}),
    ],
    ids=["full", "lora with dropout", "ZeRO 2", "ZeRO 3 with lora"],
)
def test_going_on_gives_the_losses_of_an_uninterrupted_run(plan: Any, task: Any, material: Material, tmp_path: Path) -> None:
    whole = train(request_of(tmp_path / "whole", material, plan=plan, **task))
    interrupted_after(4, tmp_path / "whole", tmp_path / "killed")

    heard: list[Event] = []
    resumed = train(request_of(tmp_path / "killed", material, plan=plan, **task), emit=heard.append)

    assert "continues from step 5 of 6" in [event.name for event in heard if isinstance(event, Stage)]
    assert resumed.resumed_from == 4
    assert resumed.losses == pytest.approx(whole.losses, rel=1e-6)
    assert resumed.tokens == whole.tokens
    assert resumed.steps == whole.steps == 6


def test_two_workers_go_on_where_they_were(material: Material, tmp_path: Path) -> None:
    layouts = {"plain": {"workers": 2}, "sharded": {"workers": 2, "zero": 3}}
    whole = results_in_ranks([request_of(tmp_path / name, material, plan=plan) for name, plan in layouts.items()], workers=2)
    for name in layouts:
        interrupted_after(4, tmp_path / name, tmp_path / f"{name}-killed")

    resumed = results_in_ranks([request_of(tmp_path / f"{name}-killed", material, plan=plan) for name, plan in layouts.items()], workers=2)

    for before, after in zip(whole, resumed, strict=True):
        assert after.resumed_from == 4
        assert after.losses == pytest.approx(before.losses, rel=1e-6)


def test_a_stop_commits_a_checkpoint_and_the_next_attempt_finishes(
    whole: tuple[TrainResult, Path], material: Material, tmp_path: Path
) -> None:
    stopped = train(request_of(tmp_path / "stopped", material), **stopping_at(3))
    resumed = train(request_of(tmp_path / "stopped", material))

    assert stopped.status == "stopped"
    assert stopped.model_uri is None
    assert checkpoint(tmp_path / "stopped" / "out", stopped.steps).joinpath("manifest.json").is_file()
    assert resumed.status == "succeeded"
    assert resumed.resumed_from == stopped.steps < 6
    assert resumed.losses == pytest.approx(whole[0].losses, rel=1e-6)


def test_only_the_newest_checkpoints_are_kept(material: Material, tmp_path: Path) -> None:
    train(request_of(tmp_path, material, checkpoint={"everySteps": 1, "keep": 2}))

    kept = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert [name for name in kept if name.startswith("step-")] == ["step-5.1", "step-6.1"]


def test_a_damaged_checkpoint_is_passed_over_with_a_warning(whole: tuple[TrainResult, Path], material: Material, tmp_path: Path) -> None:
    interrupted_after(4, whole[1], tmp_path / "killed")
    next(checkpoint(tmp_path / "killed" / "out", 4).glob("*.safetensors")).write_bytes(b"half a file")
    events: list[Event] = []

    resumed = train(request_of(tmp_path / "killed", material), emit=events.append)

    assert resumed.resumed_from == 2
    assert resumed.losses == pytest.approx(whole[0].losses, rel=1e-6)
    assert any("step-4.1 is damaged" in event.message for event in events if isinstance(event, Warned))


def test_without_its_manifest_a_checkpoint_does_not_count(whole: tuple[TrainResult, Path], material: Material, tmp_path: Path) -> None:
    interrupted_after(4, whole[1], tmp_path / "killed")
    checkpoint(tmp_path / "killed" / "out", 4).joinpath("manifest.json").unlink()

    assert train(request_of(tmp_path / "killed", material)).resumed_from == 2


def test_a_finished_run_is_not_trained_again_but_saved_again(whole: tuple[TrainResult, Path], material: Material, tmp_path: Path) -> None:
    shutil.copytree(whole[1], tmp_path / "again")
    weights = tmp_path / "again" / "out" / "model" / "model.safetensors"
    trained = weights.read_bytes()
    shutil.rmtree(weights.parent)

    again = train(request_of(tmp_path / "again", material))

    assert again.losses == whole[0].losses
    assert weights.read_bytes() == trained


def test_early_stop_ends_a_run_that_no_longer_improves_and_keeps_the_best(material: Material, tmp_path: Path) -> None:
    data = {"source": str(material.text), "maxLength": 64, "validationFraction": 0.2}
    evaluation = {"everySteps": 1, "earlyStop": 2}
    optimizer = {"learningRate": 0.3, "schedule": "constant", "warmup": 0}  # far too high: it soon gets worse

    result = train(request_of(tmp_path, material, data=data, evaluation=evaluation, optimizer=optimizer, steps=40))

    assert result.status == "succeeded"
    assert result.steps < 40
    best_step, _ = min(result.eval_losses, key=lambda pair: pair[1])
    assert result.steps == best_step + 2
    assert f"stopped at step {result.steps} of 40: no evaluation was better than that of step {best_step}" in remarks_of(asdict(result))[0]
    assert checkpoint(tmp_path / "out", best_step).joinpath("manifest.json").is_file()


MESHES: dict[str, dict[str, Any]] = {
    "ranks": {"zero": 2},
    "tensor parallel": {"tensor_parallel": 2, "zero": 0},
    "tensor parallel, ZeRO 2": {"tensor_parallel": 2, "zero": 2},
    "context parallel, ZeRO 2": {"context_parallel": 2, "zero": 2, "grad_accum": 4},
}
MORE_MESHES: dict[str, dict[str, Any]] = {
    "tensor parallel, ZeRO 1": {"tensor_parallel": 2, "zero": 1},
    "context parallel": {"context_parallel": 2, "zero": 0, "grad_accum": 4},
}


@pytest.mark.parametrize("meshes", [MESHES, pytest.param(MORE_MESHES, marks=pytest.mark.long)], ids=["one of each kind", "the others"])
def test_early_stop_leaves_the_best_weights_on_any_mesh(meshes: dict[str, dict[str, Any]], material: Material, tmp_path: Path) -> None:
    """The long one: stage 1 beside stage 2, and stage 0 where the short one has tensor parallelism with it."""
    task = {
        "data": {"source": str(material.text), "maxLength": 64, "validationFraction": 0.2},
        "evaluation": {"everySteps": 1, "earlyStop": 1},
        "optimizer": {"name": "sgd", "learningRate": 50.0, "schedule": "constant", "warmup": 0},  # the second step makes it worse
    }

    def request(folder: str, **plan: Any) -> TrainRequest:
        return mesh_request(tmp_path / folder, material.model, material.text, steps=4, task=task, **plan)

    alone = train(request("alone", workers=1))
    results = results_in_ranks([request(name, workers=2, **plan) for name, plan in meshes.items()], workers=2)

    best = load_file(tmp_path / "alone" / "out" / "model" / "model.safetensors")
    for name, result in zip(meshes, results, strict=True):
        assert (result.status, result.steps) == ("succeeded", alone.steps), name
        saved = load_file(tmp_path / name / "out" / "model" / "model.safetensors")
        assert max(float((saved[own] - best[own]).abs().max()) for own in best) < 1e-4, name


def test_checkpoints_and_model_live_on_s3_as_well(s3: S3, material: Material, tmp_path: Path) -> None:
    output = f"s3://{s3.bucket}/training"
    task = train_task(material.model, material.text, checkpoint={"everySteps": 2})
    whole = train(train_request(tmp_path / "first", task, output=output))
    store = open_store(output)
    for folder in ("checkpoints/step-6.1", "model"):
        store.delete_prefix(folder)

    resumed = train(train_request(tmp_path / "second", task, output=output))

    assert resumed.resumed_from == 4
    assert resumed.losses == pytest.approx(whole.losses, rel=1e-6)
    assert any(store.is_complete(f"checkpoints/step-6.{token}") for token in range(2, 9))
    assert store.is_complete("model")


@pytest.mark.parametrize("what", ["weights", "config.json"])
def test_another_base_at_the_same_place_is_refused(what: str, material: Material, tmp_path: Path) -> None:
    """An adapter that learned on two bases would fit none."""
    base = write_model(tmp_path / "base")
    task = train_task(base, material.text, method={"lora": {"rank": 4}}, steps=4, checkpoint={"everySteps": 2})
    request = train_request(tmp_path, task, cpu_plan())
    train(request)
    stop_after(2, tmp_path / "out")
    if what == "weights":
        file = base / "model.safetensors"
        save_file({name: weight * 1.5 for name, weight in load_file(file).items()}, file, {"format": "pt"})
    else:
        (base / what).write_text((base / what).read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 0.3'))

    with pytest.raises(BadInput, match=r"is another base than when the checkpoint was written: (model\.safetensors|config\.json) changed"):
        train(request)
