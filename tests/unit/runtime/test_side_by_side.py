"""Gangs of a search side by side: who hears what, and what becomes of the others when one fails or the search ends.

With real ranks: `test_a_search_measures_and_writes_the_winner_down` in tests/integration/runtime/test_tune.py.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.clusters.run_machines import here

from tuneyard.api import FailureKind, JobFailed, Retries, Task
from tuneyard.api.worker_counts import gangs_in
from tuneyard.runtime.train.attempt import TrainSetting
from tuneyard.runtime.tune.gangs import Run, SideBySide, settings_of_gangs
from tuneyard.tracking import Emit, Event, Warned, silent
from tuneyard.tuning import Trial

TRAIN = {"model": {"name": "m"}, "data": {"source": "d"}}
_HANGS_S = 60.0


def gangs(folder: Path, count: int, emit: Emit = silent) -> SideBySide:
    machines = here(folder)
    setting = TrainSetting(machines=machines, retries=Retries(), stop_grace_s=machines.stop_grace_s)
    return SideBySide(settings_of_gangs(setting, count, 4), emit)


def trial(number: int) -> Trial:
    return Trial(number=number, point={}, tokens_per_s=1.0)


def test_gangs_measure_side_by_side_and_tell_one_thread(tmp_path: Path) -> None:
    """Each run waits until both have begun. What they tell comes before their end, in the thread of the search."""
    both = threading.Barrier(2)
    heard: list[tuple[str, threading.Thread]] = []

    def prepare(gang: int, _point: Mapping[str, Any], number: int, _first_s: float | None) -> Run:
        def run() -> Trial:
            both.wait(_HANGS_S)
            side.emit(Warned(task="search", message=f"of gang {gang}"))
            return trial(number)

        return run

    side = gangs(tmp_path, 2, lambda event: heard.append((str(event), threading.current_thread())))
    with side.running(prepare):
        side.start(0, {}, 1, None)
        side.start(1, {}, 2, None)
        ended = dict([side.ended(), side.ended()])
    assert ended == {0: trial(1), 1: trial(2)}
    assert sorted(heard) == [(str(Warned(task="search", message=f"of gang {gang}")), threading.current_thread()) for gang in (0, 1)]


def test_one_gang_measures_in_the_thread_of_the_search(tmp_path: Path) -> None:
    def prepare(_gang: int, _point: Mapping[str, Any], number: int, _first_s: float | None) -> Run:
        return lambda: trial(number) if threading.current_thread() is threading.main_thread() else None

    with gangs(tmp_path, 1).running(prepare) as side:
        side.start(0, {}, 7, None)
        assert side.ended() == (0, trial(7))


def test_the_failure_of_one_gang_stops_the_others_before_it_ends_the_search(tmp_path: Path) -> None:
    """What the other had to tell until then is heard: history would hold a trial without an end."""
    heard: list[Event] = []
    side, began = gangs(tmp_path, 2, heard.append), threading.Event()

    def prepare(gang: int, _point: Mapping[str, Any], _number: int, _first_s: float | None) -> Run:
        def lose() -> Trial:
            began.wait(_HANGS_S)
            raise JobFailed("a machine is lost", kind=FailureKind.NODE_LOST)

        def wait() -> None:
            began.set()
            assert side._given_up.wait(_HANGS_S)
            side.emit(Warned(task="search", message="stopped"))

        return lose if gang == 0 else wait

    def search() -> None:
        with side.running(prepare):
            side.start(0, {}, 1, None)
            side.start(1, {}, 2, None)
            side.ended()

    with pytest.raises(JobFailed, match="a machine is lost"):
        search()
    assert heard == [Warned(task="search", message="stopped")]


def test_a_second_ctrl_c_waits_for_no_gang(tmp_path: Path) -> None:
    side, done = gangs(tmp_path, 2), threading.Event()

    def prepare(*_: Any) -> Run:
        def wait() -> None:
            done.wait(_HANGS_S)

        return wait

    def search() -> None:
        with side.running(prepare):
            side.start(1, {}, 1, None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search()
    assert not done.is_set()
    done.set()


@pytest.mark.parametrize(
    ("at_once", "workers", "devices", "gangs_of"),
    [(1, 2, 8, 1), (2, 2, 8, 2), (4, 2, 6, 3), (2, 8, 8, 1), (2, 4, 2, 1), (1, "auto", 8, 1)],
)
def test_as_many_gangs_run_as_there_is_room_for(at_once: int, workers: int | str, devices: int, gangs_of: int) -> None:
    tuned = Task.model_validate({"name": "chat", "train": TRAIN, "resources": {"workers": workers}})
    search = Task.model_validate({"name": "search", "tune": {"task": "chat", "budget": {"atOnce": at_once}}})
    assert search.tune is not None
    assert gangs_in(search.tune, tuned, devices) == gangs_of


def test_a_gang_knows_how_many_ranks_are_beside_it_on_the_machines(tmp_path: Path) -> None:
    """If a machine is lost, room for one gang is not room for all."""
    side = gangs(tmp_path, 3)
    assert [setting.beside for setting in side._settings] == [8, 8, 8]
    assert len({id(setting.held) for setting in side._settings}) == 3
    assert side._settings[0].held is side._settings[0].machines.gangs, "the next task goes on with it"
