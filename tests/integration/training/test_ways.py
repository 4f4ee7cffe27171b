"""Rows made before the first step or while it trains, as seconds decide: the same losses, and one choice for all ranks and attempts."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.builders.checkpoints import checkpoint, saves_in_turn, stop_after
from tests.builders.models import cpu_plan, sentences, train_request, train_task, write_chats, write_model, write_preferences
from tests.integration.training.conftest import Material
from tests.ranks.forks import Call, called
from tests.ranks.groups import group

from tuneyard.data import ways
from tuneyard.data.stream import EvaluationRows, splits, windows
from tuneyard.training import train
from tuneyard.training.command import main

STREAMED, PREPARED = -1.0, 1e9
"""Limits in place of ten seconds."""
Fields = dict[str, Any]


@pytest.fixture(autouse=True)
def small_splits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_splits(monkeypatch.setattr)
    monkeypatch.setenv("TUNEYARD_CACHE", str(tmp_path / "cache"))


def use_small_splits(put: Callable[[Any, str, Any], None]) -> None:
    put(splits, "LEAST_SPLIT_BYTES", 2048)
    put(splits, "_ROWS_OF_A_SHARD", 0)
    put(windows, "_FIRST_BYTES", 2048)
    put(ways, "_EVALUATED_AT_ONCE_BYTES", 1024)


class Runner:
    """Runs a task of six steps from a JobSpec file. `limit_s` stands for ten seconds."""

    def __init__(self, folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.model, self._patch, self._capsys = folder, model, monkeypatch, capsys

    def __call__(self, limit_s: float, data: Fields, *options: str, code: int = 0, **train: Any) -> Fields:
        """`result.json`; of a task that fails, its `error`."""
        self._patch.setattr(ways, "PREPARED_WITHIN_S", limit_s)
        fields: Fields = {
            "model": {"name": str(self.model)},
            "data": {"maxLength": 64, "workers": 0, **data},
            "optimizer": {"learningRate": 1e-3, "warmup": 0},
            "batch": {"global": 8, "micro": 4},
            "strategy": {"zero": 0, "precision": "fp32"},
            "checkpoint": {"everySteps": 2},
            "steps": 6,
            **train,
        }
        spec = {"tasks": [{"name": "train", "train": fields}]}
        job = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "j"}, "spec": spec}
        path = self.folder / "job.yaml"
        path.write_text(yaml.safe_dump(job))
        with saves_in_turn():
            assert main([str(path), "--task", "train", "--out", str(self.folder / "out"), *options]) == code
        said = self._capsys.readouterr()
        return {"error": said.err} if code else dict(json.loads((self.folder / "out/train/result.json").read_text()))

    def without_cache(self) -> None:
        shutil.rmtree(self.folder / "cache", ignore_errors=True)


@pytest.fixture
def run(material: Material, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Runner:
    return Runner(tmp_path, material.model, monkeypatch, capsys)


def texts(folder: Path, name: str = "texts", rows: int = 400) -> Fields:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"text": f"{name} {i} {sentences(50)[i % 50]}"}) + "\n" for i in range(rows)))
    return {"source": str(path)}


def pairs(folder: Path) -> Fields:
    held_out = {"source": str(write_preferences(folder / "held-out.jsonl", 30))}
    return {"source": str(write_preferences(folder / "pairs.jsonl", 100)), "validation": held_out}


def chats(folder: Path) -> Fields:
    held_out = {"source": str(write_chats(folder / "held-out.jsonl", 30))}
    return {"source": str(write_chats(folder / "chats.jsonl", 200)), "validation": held_out}


def mixture(folder: Path) -> Fields:
    parts = [texts(folder, "a"), texts(folder, "b", 250), texts(folder, "c", 12)]
    return {"mix": parts, "pack": True, "validation": texts(folder, "held-out", 100)}


def counted(folder: Path) -> Fields:
    """Data whose rows `epochs` counts."""
    return {**texts(folder), "validation": texts(folder, "held-out", 100)}


def shared(folder: Path) -> Fields:
    return {**texts(folder), "validationFraction": 0.2, "pack": True}


@pytest.mark.parametrize(
    ("write", "objective"),
    [(texts, "clm"), (shared, "clm"), (mixture, "clm"), (pairs, "dpo"), (chats, "sft")],
    ids=["texts", "a share held out", "mixture", "pairs", "chats"],
)
def test_losses_are_equal_both_ways(write: Callable[[Path], Fields], objective: str, run: Runner, tmp_path: Path) -> None:
    data = write(tmp_path)
    streamed = run(STREAMED, data, objective=objective)
    run.without_cache()
    prepared = run(PREPARED, data, objective=objective)
    assert (streamed["details"]["data"]["streamed"], prepared["details"]["data"]["streamed"]) == (True, False)
    assert streamed["losses"] == prepared["losses"]
    assert streamed["eval_losses"] == prepared["eval_losses"]
    assert bool(streamed["eval_losses"]) == (write is not texts)
    of_its_own = [run["details"]["data"]["validation_streamed"] for run in (streamed, prepared)]
    assert of_its_own == [write in (chats, pairs, mixture), False]


@pytest.mark.parametrize(("then", "now"), [(STREAMED, PREPARED), (PREPARED, STREAMED)], ids=["streamed", "prepared"])
@pytest.mark.parametrize("write", [texts, mixture])
def test_a_resumed_run_keeps_the_way_that_it_began_with(
    then: float, now: float, write: Callable[[Path], Fields], run: Runner, tmp_path: Path
) -> None:
    """On a machine of another speed, with an empty cache."""
    data = write(tmp_path)
    whole = run(then, data, objective="clm")
    output = tmp_path / "out/train"
    stop_after(4, output)
    told = json.loads((checkpoint(output, 4) / "manifest.json").read_text())["extra"]["ways"]
    run.without_cache()
    resumed = run(now, data, "--resume", objective="clm")
    assert resumed["resumed_from"] == 4
    assert resumed["losses"] == whole["losses"]
    assert resumed["details"]["data"]["streamed"] == whole["details"]["data"]["streamed"] == (then == STREAMED)
    assert {way["streamed"] for name, way in told.items() if name != "c.jsonl"} == {then == STREAMED}


def test_a_kill_amid_the_first_evaluation_costs_nothing(run: Runner, tmp_path: Path) -> None:
    """With `epochs`: the training data are prepared, and the rows of the evaluation are made when it begins."""
    data = counted(tmp_path)
    about: Fields = {"objective": "clm", "steps": None, "epochs": 0.12, "evaluation": {"everySteps": 4}, "checkpoint": {"everySteps": 1}}
    whole = run(STREAMED, data, **about)
    shutil.rmtree(tmp_path / "out")
    run.without_cache()
    command = [str(tmp_path / "job.yaml"), "--task", "train", "--out", str(tmp_path / "out")]
    with pytest.raises(RuntimeError, match="-9"):
        called([Call(_killed_while_it_makes_rows, (command,))])
    resumed = run(STREAMED, data, "--resume", **about)
    assert resumed["resumed_from"] in (2, 3), "the save of step 3 may have been under way, and that of step 2 was not"
    assert len(whole["eval_losses"]) == 2
    for name in ("losses", "eval_losses"):
        assert resumed[name] == whole[name]


def _killed_while_it_makes_rows(command: list[str]) -> None:
    use_small_splits(setattr)
    ways.PREPARED_WITHIN_S = STREAMED
    build = EvaluationRows.build

    def killed(self: EvaluationRows) -> Any:
        told = self._on_progress

        def on_progress(done: int, of: int) -> None:
            told(done, of)
            if done == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        self._on_progress = on_progress
        return build(self)

    EvaluationRows.build = killed  # type: ignore[method-assign]
    with saves_in_turn():
        main(command)


def test_a_set_that_turns_out_to_be_broken_ends_the_task_at_its_first_evaluation(run: Runner, tmp_path: Path) -> None:
    data = counted(tmp_path)
    held_out = Path(data["validation"]["source"])
    lines = held_out.read_text().splitlines(keepends=True)
    held_out.write_text("".join([*lines[:50], *("broken\n" for _ in range(20)), *lines[50:]]))
    failed = run(STREAMED, data, objective="clm", evaluation={"everySteps": 4}, code=2)
    assert "held-out.jsonl: 20 of 120 rows are bad (16.7%; 1.0% are tolerated)" in failed["error"]
    held_out.write_text("".join(lines))
    resumed = run(STREAMED, data, "--resume", objective="clm", evaluation={"everySteps": 4})
    assert (resumed["resumed_from"], [step for step, _ in resumed["eval_losses"]]) == (2, [4, 6])


@pytest.mark.parametrize("per_host", [2, 1])
def test_one_rank_chooses_for_all(per_host: int, material: Material, tmp_path: Path) -> None:
    """The clock of the other rank would choose otherwise. The evaluation has the losses of rows that are prepared on one rank."""
    data = {**counted(tmp_path), "maxLength": 64}
    task = train_task(material.model, material.text, data={**data, "workers": 0})
    request = train_request(tmp_path / "run", task, cpu_plan(workers=2))
    results = called([Call(_trained, (request,), place) for place in group(2, per_machine=per_host)])
    told = [result.details["data"] for result in results if result.details]
    assert [(each["streamed"], each["validation_streamed"]) for each in told] == [(True, True)] * len(results)
    alone = train_task(material.model, material.text, data={**data, "streaming": False})
    prepared = train(train_request(tmp_path / "alone", alone, cpu_plan()))
    assert len(prepared.eval_losses) > 0
    assert [loss for _, loss in results[0].eval_losses] == pytest.approx([loss for _, loss in prepared.eval_losses], rel=1e-5)


def _trained(request: Any) -> Any:
    from tests.ranks.groups import _rank

    use_small_splits(setattr)
    ways.PREPARED_WITHIN_S = STREAMED if os.environ["RANK"] == "0" else PREPARED
    return _rank([request])[0]


def test_short_samples_are_streamed_to_a_model_with_fewer_positions_than_max_length(run: Runner, tmp_path: Path) -> None:
    """Prepared rows have always been: their longest sample is known."""
    run.model = write_model(tmp_path / "model", "gpt2")
    data = {**texts(tmp_path), "maxLength": 2048}
    streamed = run(STREAMED, data, objective="clm")
    assert streamed["details"]["data"]["streamed"]
    with (tmp_path / "texts.jsonl").open("a") as file:
        file.writelines(json.dumps({"text": "word " * 300}) + "\n" for _ in range(2))
    failed = run(STREAMED, data, objective="clm", steps=60, code=2)
    assert "tokens, and this gpt2 model has positions for 256" in failed["error"] or "the model has positions for 256" in failed["error"]
    assert "set data.maxLength to at most 256" in failed["error"]
