"""Which settings a tuner may choose, and what becomes of the task; runs of the platform as rows of history."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tuneyard.api import BadInput, JobSpec, Task
from tuneyard.api.tuned_settings import apply_settings
from tuneyard.catalog import gpu, shape_from_config
from tuneyard.cli.tune import with_search
from tuneyard.planning import DEFAULT, Calibration, estimate_speed, resolve
from tuneyard.tracking import TaskEvent
from tuneyard.tracking.history import IMPORTED, History
from tuneyard.tuning import (
    INPUTS,
    OPTIONAL,
    OUTCOMES,
    Predictor,
    calibration_of,
    default_settings,
    history_frame,
    published_runs,
    refuse_without_effect,
    settings_row,
    setup_of,
)

SHAPE = shape_from_config(
    {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    | {"intermediate_size": 512, "vocab_size": 1000}
)


def some_job(*, train: bool = False) -> JobSpec:
    work = train_task() if train else Task.model_validate({"name": "work", "process": {"command": ["true"]}})
    values = {"apiVersion": "tuneyard.dev/v1alpha1", "kind": "JobSpec", "metadata": {"name": "bot"}}
    return JobSpec.model_validate(values | {"spec": {"tasks": [work.to_yaml_dict()]}})


def train_task(**train: Any) -> Task:
    body = {"model": {"name": "m"}, "data": {"source": "d", "maxLength": 128}, "batch": {"global": 16}, **train}
    return Task.model_validate({"name": "chat", "train": body})


def test_a_choice_is_written_into_the_task_and_nothing_else_is() -> None:
    task = train_task(strategy={"recompute": True}, optimizer={"learningRate": 3e-4})
    found = apply_settings(task, {"strategy.zero": 2, "batch.micro": 4, "strategy.offload.optimizer": "cpu", "resources.workers": 2})
    assert found.train is not None
    assert found.train.layout.zero == 2
    assert found.train.layout.recompute is True
    assert found.train.layout.offload.optimizer == "cpu"
    assert found.train.batch.micro == 4
    assert found.resources.workers == 2
    assert found.to_yaml_dict()["train"]["optimizer"] == {"learningRate": 3e-4}


def test_a_strategy_left_to_the_planner_is_opened_for_a_choice() -> None:
    found = apply_settings(train_task(strategy="auto"), {"strategy.zero": 3})
    assert found.train is not None
    assert found.train.layout.zero == 3


def test_a_value_that_the_field_does_not_take_is_refused() -> None:
    with pytest.raises(BadInput):
        apply_settings(train_task(), {"strategy.zero": 7})


def test_only_what_leaves_the_learning_alone_is_searched_unasked() -> None:
    on_cpu = default_settings(train_task(), workers=[1, 2], is_cpu=True, flash=False, liger=False)
    assert set(on_cpu) == {"batch.micro", "strategy.zero", "strategy.recompute", "model.attention", "resources.workers"}
    assert on_cpu["batch.micro"] == (1, 2, 4, 8, 16)
    on_gpu = default_settings(train_task(), workers=[8], is_cpu=False, flash=True, liger=True)
    assert on_gpu["model.attention"] == ("flash", "sdpa")
    assert "strategy.offload.optimizer" in on_gpu
    assert on_gpu["strategy.tensorParallel"] == (1, 2, 4, 8)
    assert on_gpu["strategy.sequenceParallel"] == (False, True)
    assert not {"strategy.contextParallel", "strategy.shardWithin"} & on_gpu.keys(), "rows are short, and there is one machine"
    long = default_settings(train_task(data={"source": "d", "maxLength": 32768}), workers=[16], is_cpu=False, flash=True, liger=True)
    assert long["strategy.contextParallel"] == (1, 2, 4, 8)
    assert long["strategy.shardWithin"] == ("none", "host")
    odd = default_settings(train_task(), workers=[1, 3], is_cpu=False, flash=True, liger=True)
    assert "strategy.tensorParallel" not in odd


def test_data_workers_are_searched_where_there_is_a_choice() -> None:
    streamed = default_settings(train_task(), workers=[1], is_cpu=True, flash=False, liger=False, data_workers=(1, 2, 4))
    assert streamed["data.workers"] == (1, 2, 4)
    found = apply_settings(train_task(), {"data.workers": 2})
    assert found.train is not None
    assert found.train.data.workers == 2
    with pytest.raises(BadInput):
        apply_settings(train_task(data={"source": "d", "service": {}}), {"data.workers": 2})


def test_what_a_run_waited_for_data_is_not_held_against_its_settings() -> None:
    result = {"tokens_per_s": 600.0, "details": {"bottleneck": {"stall": 0.4}}}
    waited = history_frame([{"settings": row(), "status": "succeeded", "failure": "", "result": result}])
    assert list(waited.tokens_per_sec_per_gpu) == [pytest.approx(500.0)]


# --- history


def row(**changes: Any) -> dict[str, Any]:
    task = train_task()
    assert task.train is not None
    plan = resolve(task.train, SHAPE, gpu("a100"), 2)
    return settings_row(task.train, SHAPE, plan) | changes


def test_a_run_has_all_that_a_predictor_reads() -> None:
    assert set(row()) == {*INPUTS, *OPTIONAL}


def test_every_run_becomes_a_row_and_teaches_the_predictor(tmp_path: Path) -> None:
    from tuneyard.tracking.history_sink import HistorySink
    from tuneyard.tracking.sink import Warnings

    url = f"sqlite:///{tmp_path}/history.db"
    sink = HistorySink(some_job(), "", Warnings(), url=url)
    for number in range(3):
        sink.record(TaskEvent(task=f"search/{number}", state="started", kind="train", settings=row(micro_batch=2**number)))
        result = {"tokens_per_s": 1000.0 * (number + 1), "peak_memory_gb": [3.0, 4.0]}
        ended = TaskEvent(task=f"search/{number}", state="succeeded", kind="train", result=result)
        oom = TaskEvent(task=f"search/{number}", state="failed", kind="train", failure="OutOfMemory")
        sink.record(oom if number == 2 else ended)
    sink.close("succeeded", "")

    history = History.open(url)
    rows = history_frame(history.training_runs())
    history.close()
    assert list(rows.tokens_per_sec_per_gpu[:2]) == [500.0, 1000.0]
    assert list(rows.status) == ["ok", "ok", "oom"]
    assert rows.peak_mem_gb[0] == 4.0
    assert Predictor.fit(rows).timed_rows == 2


def test_the_planner_learns_what_runs_of_this_platform_have_reached() -> None:
    """Half as fast as planned, on one SKU: the planner says so from then on, there alone. Padded runs count while there are no others."""

    def planned(wish: dict[str, Any], calibration: Calibration = DEFAULT) -> float:
        setup = setup_of(wish)
        assert setup is not None
        return estimate_speed(setup, calibration).tokens_per_s_per_gpu

    wishes = [row(micro_batch=micro, packed=0.0) for micro in (1, 2, 4, 8) for _ in range(3)]
    slow = pd.DataFrame([{**wish, "tokens_per_sec_per_gpu": planned(wish) / 2, "peak_mem_gb": None, "status": "ok"} for wish in wishes])
    found, runs = calibration_of(slow)
    assert runs == {wishes[0]["gpu_type"]: 12}
    assert planned(wishes[0], found) == pytest.approx(planned(wishes[0]) / 2, rel=0.15)
    elsewhere = row(gpu_type="h100-80gb")
    assert planned(elsewhere, found) == planned(elsewhere)

    full = slow.head(1).assign(packed=1.0, tokens_per_sec_per_gpu=planned(wishes[0]))
    found, runs = calibration_of(pd.concat([slow, full]))
    assert runs.total() == 1
    assert planned(wishes[0], found) == pytest.approx(planned(wishes[0]), rel=0.05)


def test_without_runs_the_planner_believes_what_it_did() -> None:
    assert calibration_of(history_frame([])) == (DEFAULT, Counter())


def test_a_failure_that_says_nothing_about_the_settings_is_not_held_against_them() -> None:
    (status,) = history_frame([{"settings": row(), "status": "failed", "failure": "NodeLost", "result": None}]).status
    assert status == "not reported"


def test_published_runs_are_taken_in_once(tmp_path: Path) -> None:
    published = pd.DataFrame([row(), row(micro_batch=4), row()], columns=list(INPUTS)).assign(
        tokens_per_sec_per_gpu=[100.0, None, 100.0], peak_mem_gb=[7.0, None, 7.0], status=["ok", "failed (crashed)", "ok"], source="paper"
    )
    history = History.open(f"sqlite:///{tmp_path}/history.db")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert history.add_training_runs(published_runs(published), now) == 2
    assert history.add_training_runs(published_runs(published), now + timedelta(days=1)) == 0
    (job,) = history.jobs(team=IMPORTED)
    assert (job.name, job.attempts, job.started_at.replace(tzinfo=UTC)) == ("paper", 2, now)
    assert history.jobs() == [], "what others ran is not among one's own"
    rows = history_frame(history.training_runs())
    history.close()
    assert sorted(rows.status) == ["failed", "ok"]
    assert list(rows.columns) == [*INPUTS, *OPTIONAL, *OUTCOMES, "origin"]


def test_a_csv_without_a_column_is_refused_by_its_name() -> None:
    with pytest.raises(BadInput, match="micro_batch"):
        published_runs(pd.DataFrame([row()]).drop(columns="micro_batch"))


def test_a_row_with_context_parallelism_has_a_plan() -> None:
    setup = setup_of(row() | {"gpus": 4, "dp": 2, "cp": 2})
    assert setup is not None
    assert setup.layout.context_parallel == 2


@pytest.mark.parametrize(
    ("space", "place", "said"),
    [
        ({"strategy.tensorParallel": [2]}, {"workers": 1}, "nobody to share matrices with"),
        ({"strategy.contextParallel": [2]}, {"workers": 1}, "nobody to share rows with"),
        ({"strategy.sequenceParallel": [True]}, {"workers": 2}, "no workers share matrices"),
        ({"strategy.shardWithin": ["host"]}, {"workers": 8}, "all workers are on one machine"),
    ],
)
def test_layouts_without_effect_are_refused(space: dict[str, Any], place: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        refuse_without_effect(train_task(), space, **({"hosts": 1, "is_cpu": False} | place))
    shared = {"strategy.sequenceParallel": [True], "strategy.tensorParallel": [2]}
    refuse_without_effect(train_task(), shared, workers=2, hosts=1, is_cpu=False)


# --- what to tune


def test_a_job_with_one_train_task_gets_a_search() -> None:
    job, name = with_search(some_job(train=True), trials=3, minutes=None, searcher="random")
    search = job.spec.task(name).tune
    assert search is not None
    assert (search.budget.trials, search.searcher) == (3, "random")


def test_a_job_without_any_is_refused() -> None:
    with pytest.raises(BadInput, match="not clear what to tune"):
        with_search(some_job(), trials=None, minutes=None, searcher=None)
