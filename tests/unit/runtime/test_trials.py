"""What becomes of a trial by how its attempt ends. Attempts themselves are run in tests/integration/runtime/test_tune.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.builders.models import train_request, train_task
from tests.clusters.run_machines import here, pods
from tests.unit.runtime.test_attempt_state import STEP

from tuneyard.api import BadInput, FailureKind, JobFailed, Retries, StorageError, Task, TrainTask
from tuneyard.api.attempt_report import RankPlace
from tuneyard.runtime.machines import Machines
from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.runtime.tune import trials
from tuneyard.runtime.tune.trials import Listener, in_its_own_order, run_trial, short
from tuneyard.tracking import Event, Placed, TaskEvent, TimeSplit
from tuneyard.tuning import Trial

PLACED = Placed(task="search-7", ranks=(RankPlace(rank=0, pod="pod-0", node="gpu-7"),))
Attempt = Callable[[Any, TrainSetting, Listener, Callable[[], bool]], Any]


class Ended:
    """What is read of a TrainResult."""

    peak_memory_gb = (1.0, 1.2)
    mfu = 0.3
    world_size = 2
    details: Mapping[str, Any] = {}


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Trial, list[Event]]]:
    """Runs a trial whose attempt does as told; the trial, and the events that were passed on."""

    def run(attempt: Attempt, *, limit_s: float = 60.0, machines: Machines | None = None, stop: bool = False) -> tuple[Trial, list[Event]]:
        monkeypatch.setattr(trials, "run_train", attempt)
        heard: list[Event] = []
        machines = machines or here(tmp_path)
        setting = TrainSetting(machines=machines, retries=Retries(), stop_grace_s=machines.stop_grace_s, secrets=["hunter2"])
        request = train_request(tmp_path, train_task(tmp_path / "model", tmp_path / "text.jsonl"))
        Path(request.output).mkdir(parents=True)
        (Path(request.output) / "weights").write_text("large")
        found = run_trial(
            7,
            {"batch.micro": 2},
            request,
            setting,
            Listener("search", "search/7", heard.append),
            {},
            limit_s=limit_s,
            should_stop=lambda: stop,
        )
        assert not list(Path(request.output).rglob("*")), "nothing is left of it"
        return found, heard

    return run


def steps(*rates: float) -> Attempt:
    def attempt(_request: Any, _setting: Any, listener: Listener, _stop: Any) -> Ended:
        listener(PLACED)
        for rate in rates:
            listener(replace(STEP, tokens_per_s=rate))
        return Ended()

    return attempt


def fails(error: Exception) -> Attempt:
    def attempt(*_: Any) -> Any:
        raise error

    return attempt


def test_its_speed_is_the_median_after_warm_up(trial: Callable[..., tuple[Trial, list[Event]]]) -> None:
    found, heard = trial(steps(1.0, 5.0, 80.0, 90.0, 90.0, 100.0, 100.0, 110.0, 110.0, 120.0))
    assert (found.number, found.tokens_per_s, found.failure) == (7, 100.0, "")
    assert found.spread == pytest.approx(0.1)
    states = [event.state for event in heard if isinstance(event, TaskEvent)]
    assert states == ["started", "succeeded"]
    assert {event.task for event in heard if event is not heard[1]} == {"search/7"}
    assert heard[1] == replace(PLACED, task="search"), "a hub must know that ranks have begun"


def test_a_wait_for_data_counts_whichever_step_it_comes_at(trial: Callable[..., tuple[Trial, list[Event]]]) -> None:
    """Steps of 0.1 s, and one of 0.9 s that waits for 0.8 s of it: eight steps take 1.6 s, half of which is the wait."""
    rapid, stalled = replace(STEP, tokens=10, tokens_per_s=100.0), TimeSplit(data_s=0.8, forward_s=0.1)

    def attempt(_request: Any, _setting: Any, listener: Listener, _stop: Any) -> Ended:
        for number in range(10):
            listener(replace(rapid, tokens_per_s=10 / 0.9, split=stalled) if number == 6 else rapid)
        return Ended()

    found, heard = trial(attempt)
    assert found.tokens_per_s == pytest.approx(50.0)
    ended = next(event for event in heard if isinstance(event, TaskEvent) and event.state == "succeeded")
    assert ended.result is not None
    assert ended.result["details"]["bottleneck"]["stall"] == pytest.approx(0.5)


@pytest.mark.parametrize("kind", [FailureKind.OUT_OF_MEMORY, FailureKind.INTERNAL, FailureKind.NODE_LOST])
def test_a_failure_is_a_result(trial: Callable[..., tuple[Trial, list[Event]]], kind: FailureKind) -> None:
    found, heard = trial(fails(JobFailed("a rank with hunter2 died\nlast lines", "try less", kind=kind)))
    assert (found.tokens_per_s, found.failure) == (None, str(kind))
    assert "hunter2" not in found.message
    assert found.message.endswith("died")
    assert [event.failure for event in heard if isinstance(event, TaskEvent)][-1] == str(kind)


def test_settings_that_a_library_refuses_are_a_result(trial: Callable[..., tuple[Trial, list[Event]]]) -> None:
    assert trial(fails(BadInput("no such kernel", "take another")))[0].failure == "UserError"


def test_one_that_hangs_is_asked_to_stop_and_is_a_result(trial: Callable[..., tuple[Trial, list[Event]]]) -> None:
    def hangs(_request: Any, setting: TrainSetting, _listener: Listener, should_stop: Callable[[], bool]) -> Ended:
        assert setting.retries.max == 0
        while not should_stop():
            pass
        return Ended()

    found, heard = trial(hangs, limit_s=0.05)
    assert (found.failure, found.tokens_per_s) == ("Hang", None)
    assert [event.failure for event in heard if isinstance(event, TaskEvent)][-1] == "Deadline"


def test_one_without_a_step_after_warm_up_says_nothing_of_its_speed(trial: Callable[..., tuple[Trial, list[Event]]]) -> None:
    assert trial(steps(1.0, 2.0))[0].tokens_per_s is None


@pytest.mark.parametrize(
    "error", [JobFailed("the machine is gone", "look", kind=FailureKind.NODE_LOST), StorageError("the store is away", "wait")]
)
def test_a_machine_that_is_lost_on_a_cluster_ends_the_attempt(
    trial: Callable[..., tuple[Trial, list[Event]]], error: Exception, tmp_path: Path
) -> None:
    with pytest.raises(type(error)):
        trial(fails(error), machines=pods(tmp_path))
    assert not list((tmp_path / "out").rglob("*"))


def test_trials_of_data_workers_read_in_orders_of_their_own(tmp_path: Path) -> None:
    task = train_task(tmp_path, tmp_path, seed=2**32 - 2)
    orders = [in_its_own_order(task, number) for number in range(1, 9)]
    assert len({each.seed for each in orders} | {task.seed}) == 9
    assert all(TrainTask.model_validate(each.model_dump(by_alias=True)) == each for each in orders), "seeds stay in their range"
    assert {each.model_copy(update={"seed": 0}) == task.model_copy(update={"seed": 0}) for each in orders} == {True}


def test_a_short_task_keeps_its_batch_and_neither_evaluates_nor_checkpoints(tmp_path: Path) -> None:
    body = train_task(tmp_path, tmp_path, data={"source": "d", "validationFraction": 0.1}, batch={"global": 16})
    task = short(Task.model_validate({"name": "chat", "train": body.model_dump(by_alias=True)}), 8)
    assert task.train is not None
    assert (task.train.steps, task.train.batch.global_, task.train.data.validation_fraction) == (8, 16, 0.0)
    assert task.train.checkpoint.every_steps == 80
