"""What Prometheus hears of a hub, from statuses of jobs, teams and Schedules."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.clusters.hub_in_memory import running_hub, until
from tests.unit.runtime.test_attempt_state import STEP, state_after

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard.api.moments import written
from tuneyard.api.status import PlacementStatus, Progress, TaskStatus
from tuneyard.tracking import Checkpointed, TaskEvent, TimeSplit
from tuneyard_operators.hub.goals import goal_of
from tuneyard_operators.hub.metrics import Metrics
from tuneyard_operators.hub.queue_waits import queue_wait_s
from tuneyard_operators.kube.expiry import expiry_s
from tuneyard_operators.metrics import (
    MOST_TEAMS,
    OTHER_TEAMS,
    Consumption,
    JobCounters,
    ListedJob,
    LiveState,
    TeamNames,
    Waiting,
    families,
    gpu_series,
    job_series,
    queue_series,
    schedule_series,
    team_series,
)
from tuneyard_operators.rendering import Defaults

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
EAST = ("east", "h100-80gb")


def at(minutes: float) -> str:
    return written(NOW + timedelta(minutes=minutes))


def attempt(number: int = 1, *, begun: float = -60, ended: float | None = None, gpus: int = 8, **fields: Any) -> Attempt:
    placement = PlacementStatus(cluster="east", sku="h100-80gb", workers=gpus, gpus=gpus, price_per_gpu_hour=2.0)
    moments = {"placed_at": at(begun), "started_at": at(begun), "ended_at": at(ended) if ended is not None else None}
    return Attempt(
        number=number,
        token=number,
        name=f"bot-{number}",
        placement=placement,
        **{"task": "train", "phase": Phase.RUNNING, **moments, **fields},
    )


def job(*attempts: Attempt, name: str = "bot", **progress: Any) -> ListedJob:
    told = Progress(**progress)
    status = JobStatus(phase=Phase.RUNNING, attempts=list(attempts), progress=told, tasks=[TaskStatus(name="train", progress=told)])
    return ListedJob("maps", name, "maps", status)


def values(samples: Any) -> dict[str, float]:
    return {family.name: value for family, _, value in samples}


def test_a_running_job_tells_its_pace_and_its_price() -> None:
    pace = {"step": 5, "of": 20, "mfu": 0.3, "data_wait": 0.4, "checkpoint_s": 7.0, "network_gb_per_s": 1.5}
    told = values(job_series([job(attempt(last_step=5, checkpoint_at=at(-10)), **pace)], NOW, JobCounters()))
    assert told["tuneyard_job_gpus"] == 8
    assert told["tuneyard_job_gpu_seconds_total"] == pytest.approx(8 * 3600)
    assert told["tuneyard_job_cost_total"] == pytest.approx(16.0)
    assert told["tuneyard_job_mfu_ratio"] == 0.3
    assert told["tuneyard_data_wait_ratio"] == 0.4
    assert told["tuneyard_job_network_bytes_per_second"] == 1.5e9
    assert told["tuneyard_job_progress_ratio"] == 0.25
    assert told["tuneyard_job_checkpoint_seconds"] == 7.0
    assert told["tuneyard_job_checkpoint_age_seconds"] == 600
    assert told["tuneyard_job_restarts_total"] == 0


def test_a_wait_below_one_percent_and_a_pace_that_is_not_known_have_no_series() -> None:
    told = values(job_series([job(attempt(), data_wait=0.002)], NOW, JobCounters()))
    assert not {"tuneyard_data_wait_ratio", "tuneyard_job_mfu_ratio", "tuneyard_job_checkpoint_age_seconds"} & set(told)


def test_a_job_that_starts_again_tells_no_pace_and_counts_its_restarts() -> None:
    waits = job(attempt(1, begun=-60, ended=-30), attempt(2, begun=-1, phase=Phase.STARTING), mfu=0.3)
    waits.status.phase = Phase.STARTING
    told = values(job_series([waits], NOW, JobCounters()))
    assert told["tuneyard_job_restarts_total"] == 1
    assert told["tuneyard_job_gpu_seconds_total"] == pytest.approx(8 * 31 * 60)
    assert "tuneyard_job_mfu_ratio" not in told


def test_a_server_that_is_woken_counts_as_no_restart() -> None:
    naps = [attempt(number, begun=-60 + 5 * number, ended=-58 + 5 * number, asleep_at=1) for number in (1, 2, 3)]
    for later in ([], [attempt(4, begun=-5)]):
        told = values(job_series([job(*naps, *later)], NOW, JobCounters()))
        assert told["tuneyard_job_restarts_total"] == 0
    told = values(job_series([job(*naps, attempt(4, begun=-5, ended=-3), attempt(5, begun=-1))], NOW, JobCounters()))
    assert told["tuneyard_job_restarts_total"] == 1


def test_counters_of_a_job_do_not_fall_when_its_attempt_ends_earlier_than_was_told() -> None:
    counters, first, second = JobCounters(), attempt(begun=-60), attempt(2, begun=1)
    over = attempt(begun=-60, ended=-1)  # the hub learns late of its end
    told = [
        values(job_series([job(*attempts)], NOW + timedelta(minutes=minute), counters))
        for minute, attempts in ((0, [first]), (0.5, [over]), (1.5, [over, second]), (10, [over, second]))
    ]
    assert [each["tuneyard_job_gpu_seconds_total"] / 8 / 60 for each in told] == pytest.approx([60, 60, 60, 68])
    assert [each["tuneyard_job_cost_total"] for each in told] == pytest.approx([16, 16, 16, 16 * 68 / 60])
    assert [each["tuneyard_job_gpus"] for each in told] == [8, 0, 8, 8]


def test_counters_of_a_job_begin_anew_with_another_job_of_its_name() -> None:
    counters, old, new = JobCounters(), replace(job(attempt()), uid="1"), replace(job(attempt(begun=-5)), uid="2")
    assert values(job_series([old], NOW, counters))["tuneyard_job_gpu_seconds_total"] == pytest.approx(8 * 3600)
    assert values(job_series([new], NOW, counters))["tuneyard_job_gpu_seconds_total"] == pytest.approx(8 * 300)
    over = replace(job(attempt(ended=-30)), uid="1")
    assert values(job_series([over], NOW, counters))["tuneyard_job_gpu_seconds_total"] == pytest.approx(8 * 1800)  # it was forgotten


def test_of_too_many_jobs_the_largest_have_series() -> None:
    jobs = [job(attempt(gpus=gpus), name=f"job-{gpus}") for gpus in range(1, 11)]
    samples = list(job_series(jobs, NOW, JobCounters(), most=3))
    assert (families.JOBS_WITHOUT_SERIES, (), 7) in samples
    assert {labels[1] for _, labels, _ in samples if labels} == {"job-10", "job-9", "job-8"}


def test_gpus_that_wait_are_allocated_and_not_used() -> None:
    starting = job(attempt(phase=Phase.STARTING), name="new")
    samples = {
        (family, labels): value
        for family, labels, value in gpu_series(
            [job(attempt(), data_wait=0.2, checkpoint_wait=0.05), starting], {EAST: (20, 24), ("west", "cpu"): (4, 4)}, frozenset({"east"})
        )
    }
    assert samples[families.ALLOCATED_GPUS, ("maps", *EAST)] == 16
    assert samples[families.USED_GPUS, ("maps", *EAST)] == pytest.approx(6.0)
    assert samples[families.IDLE_GPUS, EAST] == 4
    assert samples[families.IDLE_GPUS, ("west", "cpu")] == 0  # no gang may start there


@given(st.lists(st.floats(0, 120), max_size=8), st.floats(1, 100))
def test_each_gpu_second_counts_once_however_often_prometheus_asks(asked: list[float], ends: float) -> None:
    since = NOW - timedelta(minutes=30)  # the attempt began half an hour before this replica leads
    counts, running, over = Consumption(since, str), attempt(begun=-60), attempt(begun=-60, ended=ends)
    for minute in sorted(minute for minute in asked if minute < ends):
        counts.advance([("maps", running)], NOW + timedelta(minutes=minute))
    counts.ended("maps", [over], NOW + timedelta(minutes=ends, seconds=30))
    counts.advance([], NOW + timedelta(minutes=130))
    told = values(counts.series())
    held_s = (datetime.fromisoformat(over.ended_at or "") - since).total_seconds()
    assert told["tuneyard_gpu_seconds_total"] == pytest.approx(8 * held_s, abs=8)  # moments of a status are whole seconds
    assert told["tuneyard_cost_total"] == pytest.approx(8 * held_s / 3600 * 2, abs=0.01)


def test_names_of_teams_are_bounded() -> None:
    names = TeamNames()
    assert {names.label(f"team-{number}") for number in range(MOST_TEAMS + 50)} == {*(f"team-{n}" for n in range(MOST_TEAMS)), OTHER_TEAMS}
    assert names.label("team-0") == "team-0"


def test_a_team_made_after_many_invented_ones_has_its_series() -> None:
    names, invented = TeamNames(), {f"x{number}" for number in range(MOST_TEAMS)}
    list(queue_series([Waiting(team, 1, 0.0) for team in sorted(invented)], 1.0, names.label))
    assert names.label("speech") == OTHER_TEAMS
    assert len(names.know(["speech"], invented)) == 1  # the others keep theirs
    speech = {"metadata": {"name": "speech"}, "spec": {"quota": {"h100-80gb": 8}, "gpuHours": 100}}
    told = values(team_series([speech], NOW, names.label))
    assert (told["tuneyard_team_quota_gpus"], told["tuneyard_team_month_gpu_hours_limit"]) == (8, 100.0)


def test_names_that_have_gone_free_their_places_and_not_before_they_are_needed() -> None:
    names, first = TeamNames(), {f"x{number}" for number in range(MOST_TEAMS)}
    assert names.know(["maps"], first) == set()
    assert names.know([], set()) == set()
    assert names.label("maps") == "maps"
    lost = names.know([], {"y0", "y1"})
    assert len(lost) == 2
    assert "maps" not in lost  # the older name
    assert {names.label(team) for team in ("y0", "y1")} == {"y0", "y1"}
    assert {names.label(team) for team in lost} == {OTHER_TEAMS}


def test_objects_of_teams_have_a_limit_of_their_own() -> None:
    names, teams = TeamNames(), [f"team-{number}" for number in range(MOST_TEAMS + 50)]
    names.know(teams, {"x"})
    assert names.know(reversed(teams), {"x"}) == set()
    assert [names.label(team) for team in (teams[0], teams[-1], "x")] == ["team-0", OTHER_TEAMS, OTHER_TEAMS]


def test_a_team_that_has_lost_its_label_has_no_series() -> None:
    metrics, counts = Metrics(), Consumption(NOW - timedelta(hours=1), str)
    counts.advance([("maps", attempt()), ("speech", attempt(2))], NOW)
    metrics.waits.labels("maps").observe(1)
    metrics.preemptions.labels("maps").inc()
    metrics.forget_teams({"maps", "speech"})
    counts.forget({"maps"})
    assert {labels[0] for _, labels, _ in counts.series()} == {"speech"}
    assert not [name for name in samples(metrics) if "maps" in name]


@pytest.mark.parametrize("broken", [{}, {"metadata": {}}, {"metadata": {"name": 5}}, {"metadata": None}, {"metadata": {"name": "odd"}}])
def test_a_team_that_cannot_be_read_leaves_the_others_their_series(broken: dict[str, Any]) -> None:
    maps = {"metadata": {"name": "maps"}, "spec": {"quota": {"h100-80gb": 16}}}
    told = {(family.name, labels[0]): value for family, labels, value in team_series([broken, maps], NOW, str)}
    assert told["tuneyard_team_quota_gpus", "maps"] == 16


@pytest.mark.parametrize("limit", [float("nan"), float("inf"), 10**400, True, "100", None])
def test_a_limit_that_is_no_number_is_not_told(limit: Any) -> None:
    team = {"metadata": {"name": "maps"}, "spec": {"gpuHours": limit}, "status": {"gpuHoursUsed": 3.0, "usageAt": at(-1)}}
    told = values(team_series([team], NOW, str))
    assert "tuneyard_team_month_gpu_hours_limit" not in told
    assert told["tuneyard_team_month_gpu_hours"] == 3.0


def test_a_teams_month_begins_at_zero() -> None:
    team = {"metadata": {"name": "maps"}, "spec": {"quota": {"h100-80gb": 16}, "gpuHours": 100}}
    spent = {"gpuHoursUsed": 95.0, "cost": 190.0, "borrowed": {"h100-80gb": 4}, "usageAt": at(-1)}
    now = values(team_series([{**team, "status": spent}], NOW, str))
    later = values(team_series([{**team, "status": spent}], NOW + timedelta(days=7), str))
    assert (now["tuneyard_team_month_gpu_hours"], now["tuneyard_team_month_gpu_hours_limit"]) == (95.0, 100.0)
    assert (now["tuneyard_team_quota_gpus"], now["tuneyard_team_borrowed_gpus"]) == (16, 4)
    assert (later["tuneyard_team_month_gpu_hours"], later["tuneyard_team_month_cost"]) == (0.0, 0.0)


def test_schedules_in_trouble_come_first() -> None:
    late = {"status": {"nextRun": at(-30), "followed": "0 2 * * * UTC"}}
    fine = {"status": {"nextRun": at(30), "followed": "0 2 * * * UTC"}}
    paused = {"status": {"nextRun": at(-30), "followed": "suspended"}}
    lost = {"status": {"runs": [{"name": "n-1", "due": at(-60), "phase": "Missed", "verdict": "missed"}]}}
    items = [(("maps", name), item) for name, item in {"a": fine, "b": late, "c": paused, "d": lost}.items()]
    told = {(labels[1], family.name): value for family, labels, value in schedule_series(items, NOW, most=2)}
    assert told["b", "tuneyard_schedule_overdue_seconds"] == 1800
    assert told["d", "tuneyard_schedule_missed"] == 1
    assert {name for name, _ in told} == {"b", "d"}


def test_a_wait_begins_when_the_tasks_before_and_the_attempt_before_have_ended() -> None:
    tasks = [
        {"name": name, "process": {"command": ["true"]}, **more} for name, more in (("first", {}), ("train", {"dependsOn": ["first"]}))
    ]
    metadata = {"name": "bot", "namespace": "maps", "uid": "u", "creationTimestamp": at(-100)}
    goal = goal_of({"metadata": metadata, "spec": {"tasks": tasks, "storage": {"output": "s3://b/o"}}}, Defaults(image="i:1"))
    first = attempt(1, begun=-90, ended=-50, task="first")
    second, third = attempt(2, begun=-40, ended=-20), attempt(3, begun=-15)
    waits = [queue_wait_s(goal, each, [first, second, third][:number]) for number, each in enumerate((first, second, third), 1)]
    assert waits == [600, 600, 300]
    slept = second.model_copy(update={"asleep_at": 1, "woken_at": at(-16)})
    assert queue_wait_s(goal, third, [first, slept, third]) == 60


def test_an_error_in_one_part_leaves_the_others() -> None:
    def broken() -> Any:
        yield families.QUEUE_DEPTH, (), 3
        raise ValueError("a broken object")

    state, registry = LiveState(), CollectorRegistry()
    registry.register(state)
    state.sources = (broken, lambda: [(families.JOB_COST, ("maps", "bot", "maps"), 2.0)])
    text = generate_latest(registry).decode()
    assert "tuneyard_workqueue_depth 3.0" in text
    assert 'tuneyard_job_cost_total{job="bot",namespace="maps",team="maps"} 2.0' in text


def test_steps_and_saves_tell_the_cost_of_checkpoints_and_the_planned_mfu() -> None:
    begun = TaskEvent(task="tune", state="started", kind="train", plan={"speed": {"mfu": 0.42}})
    saving = type(STEP)(**{**vars(STEP), "step": 2, "split": TimeSplit(forward_s=600.0, checkpoint_s=1200.0)})
    plain = type(STEP)(**{**vars(STEP), "split": TimeSplit(forward_s=1.0)})
    progress = state_after(begun, plain, saving, Checkpointed(task="tune", step=2, uri="s3://b/c", seconds=33.0, bytes=1)).progress
    assert progress.planned_mfu == 0.42
    assert progress.checkpoint_s == 33.0
    assert progress.checkpoint_wait == pytest.approx(2 / 3 * (1 - 0.36788), abs=1e-3)  # 1,800 s weigh 1 - 1/e


def test_credentials_say_when_they_end() -> None:
    def token(**claims: Any) -> str:
        return "e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + ".c2ln"

    assert expiry_s({"token": token(exp=1_800_000_000)}) == 1_800_000_000
    for opaque in (
        {},
        {"token": token()},
        {"token": "a.b.c"},
        {"token": "opaque"},
        {"token": token(exp="soon")},
        {"client-certificate-data": "bm9uZQ=="},
    ):
        assert expiry_s(opaque) is None


def test_a_hub_tells_of_a_placed_job_and_a_follower_of_none() -> None:
    async def scene() -> None:
        async with running_hub() as stage:
            metrics: Metrics = stage.hub.metrics
            metrics.state.sources = stage.hub.state.sources
            await stage.submit("leaf", workers=8, team="maps")
            await stage.submit("waits", workers=8, placement={"clusters": ["nowhere"]})
            await stage.begin(await stage.started("leaf"))
            await until(lambda: stage.status("leaf").get("phase") == "Running", "it runs")
            await until(lambda: stage.status("waits").get("phase") == "Queued", "it waits")
            told = samples(metrics)
            assert told['tuneyard_allocated_gpus{cluster="east",sku="h100-80gb",team="maps"}'] == 8
            assert told['tuneyard_idle_gpus{cluster="east",sku="h100-80gb"}'] == 8
            assert told['tuneyard_queued_jobs{team="default"}'] == 1
            assert told['tuneyard_placements_total{cluster="east",reason="first",sku="h100-80gb"}'] == 1
            assert told['tuneyard_queue_wait_seconds_count{team="maps"}'] == 1
            metrics.state.sources = ()
            assert not [name for name in samples(metrics) if name.startswith(("tuneyard_jobs", "tuneyard_member", "tuneyard_allocated"))]

    asyncio.run(scene())


def samples(metrics: Metrics) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(generate_latest(metrics.registry).decode()):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found
