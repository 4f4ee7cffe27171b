"""What machines did, in the report, in trackers, in history, and for a hub."""

import time

from tuneyard.runtime.attempt.state import figures, state_of
from tuneyard.tracking.events import MachineUsed, Step
from tuneyard.tracking.progress.fold import TaskProgress, after
from tuneyard.tracking.report_parts.machine_charts import machine_charts
from tuneyard.tracking.series import MOST_POINTS, TaskSeries
from tuneyard.tracking.trackers.measurements import told


def used(machine: int, step: int, **figures: float) -> MachineUsed:
    return MachineUsed(task="train", machine=machine, step=step, figures=figures)


def a_step(number: int) -> Step:
    return Step(task="train", step=number, of=9, loss=1.0, learning_rate=0.1, tokens=8, step_s=1, tokens_per_s=8, mfu=0.1, eta_s=1)


def test_a_hub_is_told_the_mean_of_rates_and_the_fullest_memory() -> None:
    task = TaskProgress(name="train")
    for event in (
        a_step(1),
        used(0, 1, gpu_utilization=0.1, host_memory_gb=9.0, network_sent_gb_per_s=1.0),
        used(0, 2, gpu_utilization=0.9, host_memory_gb=3.0, network_sent_gb_per_s=1.0),
        used(1, 2, gpu_utilization=0.5, host_memory_gb=5.0, network_sent_gb_per_s=3.0),
    ):
        task = after(task, event, time.monotonic())
    progress = state_of(task).progress
    assert (progress.gpu_utilization, progress.host_memory_gb, progress.network_gb_per_s) == (0.7, 5.0, 2.0)
    assert progress.cpu_share is None
    begun_again = after(task, a_step(1), time.monotonic())
    assert begun_again.machines == task.machines


def test_trackers_have_each_machine_over_steps() -> None:
    [metrics] = told(used(3, 7, cpu_share=0.25))
    assert metrics.values == {"train/machines/3/cpu_share": 0.25}
    assert (metrics.axis, metrics.step) == ("train/step", 7)


def test_the_report_keeps_machines_over_steps_in_bounded_memory() -> None:
    series = TaskSeries()
    series.add(used(1, 1, cpu_share=0.5))
    series.add(used(0, 1, cpu_share=0.5))
    for step in range(2, 2 * MOST_POINTS):
        series.add(used(0, step, cpu_share=0.5, host_memory_gb=4.0))
    first, second = series.to_dict()["machines"]
    assert (first["machine"], second["machine"]) == (0, 1)
    assert len(first["step"]) == len(first["cpu_share"]) == len(first["host_memory_gb"]) <= MOST_POINTS // 2
    assert first["step"][-1] == 2 * MOST_POINTS - 1
    assert second == {"machine": 1, "step": [1], "cpu_share": [0.5]}


def test_history_has_the_use_of_a_whole_task() -> None:
    machines = [
        {"host": "a", "ranks": 8, "seconds": 99, "gpu_utilization": {"mean": 0.6, "most": 1.0}, "gpu_memory_gb": {"mean": 20, "most": 60}},
        {"host": "b", "ranks": 8, "seconds": 99, "gpu_utilization": {"mean": 0.8, "most": 1.0}, "gpu_memory_gb": {"mean": 30, "most": 40}},
    ]
    found = figures({"mfu": 0.4, "details": {"machines": machines}})
    assert found == {"mfu": 0.4, "used.gpu_utilization": 0.7, "used.gpu_memory_gb": 60}
    assert figures({"mfu": 0.4, "details": {"machines": "of another version"}}) == {"mfu": 0.4}


def test_the_page_draws_the_first_machine_and_the_one_that_differs_most() -> None:
    machines = [{"machine": number, "step": [1, 2], "cpu_share": [0.5, last]} for number, last in enumerate([0.9, 0.8, 0.2])]
    [chart] = machine_charts({"machines": machines})
    assert chart.title == "Busy processors"
    assert [name for name, *_ in chart.legend] == ["machine 0", "machine 2"]
    assert machine_charts({"machines": [{"machine": 0, "step": [1], "network_sent_gb_per_s": [0.0]}]}) == []
    assert machine_charts({}) == []
