"""What the hub remembers between a decision and its record: it counts as taken, and is nobody's victim."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from tests.builders.worlds import ask

from tuneyard.admission import ask_of
from tuneyard.api import Attempt, Cluster, JobSpec, JobStatus, NodeInventory, Phase, PlacementStatus, TaskStatus
from tuneyard.federation import POLICIES, Ask, Basis, Place, Team, speed_factor, taken_by
from tuneyard_operators.hub.decisions import Decided, TaskRecord
from tuneyard_operators.hub.placement_status import guessed_s, placement_of
from tuneyard_operators.hub.placements import Placements
from tuneyard_operators.hub.records import JobRecords
from tuneyard_operators.kube import Key

KEY, OTHER = ("maps", "a"), ("maps", "b")


class OneMember:
    """Stands where the hub's connection to a member stands: two nodes of eight GPUs."""

    name = "east"
    cluster = Cluster.model_validate(
        {"metadata": {"name": "east"}, "spec": {"skus": [{"name": "h100-80gb", "nodes": 2, "gpusPerNode": 8}]}},
    )
    nodes: ClassVar = [NodeInventory(name=f"n{n}", sku="h100-80gb", gpus=8, free=8) for n in (1, 2)]

    def inventory(self) -> list[NodeInventory]:
        return self.nodes


def made() -> Placements:
    return Placements(POLICIES["tuneyard"], JobRecords())


def decided(placements: Placements, key: Key = KEY) -> Decided:
    return placements.decided(key, lambda _name: None)


def waiting(placements: Placements, key: Key = KEY) -> TaskRecord:
    """The one task of a job, as the scheduler's decisions on it stand."""
    return decided(placements, key).tasks["train"]


def reason(placements: Placements, key: Key = KEY) -> str:
    verdict = waiting(placements, key).verdict
    return verdict.reason if verdict is not None else ""


def start_of(placements: Placements, key: Key = KEY) -> float | None:
    verdict = waiting(placements, key).verdict
    return verdict.starts if verdict is not None else None


def cycle(placements: Placements, now: float = 100.0) -> list[Any]:
    return placements.cycle([OneMember()], {}, now)  # type: ignore[list-item]


def status(number: int = 1, **more: Any) -> JobStatus:
    placement = PlacementStatus(cluster="east", sku="h100-80gb", workers=16, gpus=16, nodes={"n1": 8, "n2": 8})
    return JobStatus(attempts=[Attempt(number=number, task="train", token=number, placement=placement, **more)])


def placed(placements: Placements) -> None:
    placements.want(KEY, {"train": ask("maps/a", 16)}, 99)
    assert cycle(placements) == [KEY]


def test_a_decision_counts_as_taken_until_it_is_recorded_and_after() -> None:
    placements = made()
    placed(placements)
    placements.want(OTHER, {"train": ask("maps/b", 16)}, 100)
    assert waiting(placements, OTHER).place is None
    placements.sync(KEY, {}, status(), 101)
    placements.recorded(KEY, "train", 101)
    cycle(placements)
    assert "0 of 2 pods of 8 GPUs find room" in reason(placements, OTHER)
    assert placements.sync(KEY, {}, status(ended_at="1970-01-01T00:02:00Z", cleaned=True), 120)
    assert OTHER in cycle(placements, 121)


def test_what_is_not_on_record_yet_is_nobodys_victim() -> None:
    placements = made()
    placed(placements)
    placements.want(OTHER, {"train": ask("maps/b", 16, priority="high")}, 100)
    cycle(placements)
    assert not decided(placements).victims
    placements.sync(KEY, {}, status(), 101)
    placements.recorded(KEY, "train", 101)
    cycle(placements)
    assert "makes room for maps/b" in decided(placements).victims[1]


def test_who_was_told_to_go_is_told_once_however_often_its_status_changes_before_that_is_on_record() -> None:
    placements = made()
    placements.sync(KEY, {}, status(), 0)
    placements.want(OTHER, {"train": ask("maps/b", 16, priority="high")}, 100)
    assert KEY in cycle(placements)
    placements.sync(KEY, {}, status(last_step=7), 101)
    assert KEY not in cycle(placements, 102)
    told = placements.scheduler.attempt("maps/a", "train/1")
    assert told is not None
    assert told.stopping


def test_for_whom_others_go_is_known_until_the_status_says_so_and_then_by_it() -> None:
    placements = made()
    placements.sync(KEY, {}, status(), 0)
    wanted = ask("maps/b", 16, priority="high")
    placements.want(OTHER, {"train": wanted}, 99)
    assert OTHER in cycle(placements), "its status is to be written"
    assert waiting(placements, OTHER).owed_since == 100.0
    assert not placements.want(OTHER, {"train": wanted}, 101), "nothing new, though the stored ask does not say it yet"
    assert placements.scheduler.asks[0].owed_since == 100.0
    placements.want(OTHER, {"train": replace(wanted, owed_since=100.0)}, 102)
    assert waiting(placements, OTHER).owed_since is None
    assert placements.scheduler.asks[0].owed_since == 100.0


def test_a_team_that_was_missed_is_missed_no_more_when_there_are_no_teams() -> None:
    placements = made()
    placements.set_teams([Team(name="ads")])
    placements.want(KEY, {"train": ask("maps/a", 16, team="mpas")}, 99, names_team=True)
    cycle(placements)
    assert "there is no team mpas" in reason(placements)
    placements.set_teams([])
    assert cycle(placements, 101) == [KEY]
    assert waiting(placements).place is not None


def test_thousands_who_wait_are_told_why_over_several_cycles() -> None:
    placements = made()
    for number in range(500):
        placements.want(("maps", f"j{number}"), {"train": ask(f"maps/j{number}", 64)}, 100)
    told = 0
    while not told or placements.unfinished:
        told += len(cycle(placements))
    assert told == sum(waiting(placements, key).verdict is not None for key in placements.waiting) == 500
    assert cycle(placements, 110) == []


def test_a_job_that_wants_no_more_gives_back_what_was_decided() -> None:
    placements = made()
    placed(placements)
    placements.want(KEY, {}, 100)
    placements.want(OTHER, {"train": ask("maps/b", 16)}, 100)
    assert cycle(placements) == [OTHER]
    assert waiting(placements, OTHER).place is not None


def test_a_decision_for_what_a_job_does_not_ask_for_any_more_is_taken_back() -> None:
    placements = made()
    placed(placements)
    placements.want(KEY, {"train": replace(ask("maps/a", 16), seconds=5.0)}, 100)
    assert decided(placements).placements["train"].gpus == 16, "what it was placed on will do"
    placements.want(KEY, {"train": ask("maps/a", 8)}, 101)
    assert waiting(placements).place is None
    assert cycle(placements, 102) == [KEY]
    assert decided(placements).placements["train"].gpus == 8


def test_a_notice_is_forgotten_once_the_status_holds_it() -> None:
    placements = made()
    placements.sync(KEY, {}, status(), 0)
    placements.want(OTHER, {"train": ask("maps/b", 16, priority="high")}, 100)
    assert KEY in cycle(placements)
    placements.sync(KEY, {}, status(stopping="Preempted", stop_asked_at="1970-01-01T00:01:40Z"), 101)
    assert 1 not in decided(placements).victims
    assert KEY not in cycle(placements), "nobody is asked twice"


def test_a_start_is_told_as_foreseen_and_told_anew_when_it_moves() -> None:
    placements = made()
    placements.sync(KEY, {}, status(), 0)
    placements.want(OTHER, {"train": ask("maps/b", 16)}, 100)
    key = ("maps/b", "train")
    placements.foresee({key: 9_000.0})
    cycle(placements)
    assert start_of(placements, OTHER) == 9_000.0
    placements.foresee({key: 9_100.0})
    assert cycle(placements, 140) == [], "a little later is no news"
    placements.foresee({key: 20_000.0})
    assert cycle(placements, 180) == [OTHER]
    assert start_of(placements, OTHER) == 20_000.0


@pytest.mark.parametrize("basis", ["pace", "given", "plan", "assumed"])
def test_a_placement_records_where_its_duration_comes_from(basis: Basis) -> None:
    wanted = Ask(job="d/j", task="train", team="d", priority="normal", created=0.0, worlds=(8,), basis=basis)
    found = placement_of(Place(ask=wanted, cluster="east", sku="h100-80gb", workers=8, pods=1, nodes={"n": 8}, seconds=90.0))
    assert (found.seconds, found.seconds_from) == (90.0, basis)


def test_a_task_that_names_no_sku_is_asked_anew_when_members_bring_a_new_one() -> None:
    """Until then a model that needs a GPU is placed nowhere; on one with a kind of GPU on which it does not fit, never."""

    def want(placements: Placements) -> bool:
        train = {"model": {"name": "meta-llama/Llama-3.1-8B"}, "data": {"source": "s3://b/d"}, "batch": {"global": 64}}
        spec = JobSpec.model_validate(
            {"metadata": {"name": "a", "namespace": "maps"}, "spec": {"tasks": [{"name": "train", "train": train}]}}
        )
        return placements.want(KEY, {"train": ask_of(spec, 0.0, "train", JobStatus(), placements.supply.skus)}, 100)

    placements = made()
    assert want(placements)
    cycle(placements)
    assert reason(placements).endswith("the model of task train does not fit on h100-80gb")
    assert placements.supply.learn_skus([OneMember()])  # type: ignore[list-item]
    assert want(placements)
    assert cycle(placements, 101) == [KEY]
    assert decided(placements).placements["train"].gpus == 8
    assert not placements.supply.learn_skus([OneMember()])  # type: ignore[list-item]
    assert not placements.supply.learn_skus([]), "who is away may come back"


def ended(guessed_s: float, took_s: int, number: int = 1) -> JobStatus:
    found = status(number, started_at="1970-01-01T00:00:00Z", ended_at=f"1970-01-01T{took_s // 3600:02}:00:00Z", cleaned=True)
    (attempt,) = found.attempts
    assert attempt.placement is not None
    attempt.placement.guessed_seconds = guessed_s
    found.tasks = [TaskStatus(name="train", phase=Phase.SUCCEEDED)]
    return found


@pytest.mark.parametrize(("took_s", "teaches"), [(7200, True), (3600, False)])
def test_a_task_that_was_given_up_teaches_only_that_it_took_longer(took_s: int, teaches: bool) -> None:
    given_up = ended(4000.0, took_s)
    given_up.phase = given_up.tasks[0].phase = Phase.FAILED
    assert [taken.took_s for taken in taken_by(given_up)] == ([took_s] if teaches else [])


def test_a_run_of_a_schedule_is_expected_to_take_what_its_latest_runs_took() -> None:
    placements = made()
    nightly = {"tuneyard.dev/schedule": "nightly"}
    assumed = replace(ask("maps/a", 16, team="maps"), series="maps/nightly/train")
    placements.want(KEY, {"train": assumed}, 99)
    placements.sync(("maps", "old"), {}, ended(0.0, 7200), 100, nightly)
    known = placements.scheduler.ask("maps/a", "train")
    assert known is not None
    assert known.basis == "history"
    gpus = ended(0.0, 7200).attempts[0].placement
    assert gpus is not None
    assert known.seconds == pytest.approx(7200 * gpus.gpus * speed_factor(gpus.sku) / 16)
    assert waiting(placements).ask == assumed
    placements.sync(("maps", "old"), {}, None, 102)
    placements.want(("maps", "c"), {"train": replace(assumed, job="maps/c")}, 103)
    fresh = placements.scheduler.ask("maps/c", "train")
    assert fresh is not None
    assert fresh.basis == "assumed", "runs that are deleted teach nothing any more"


def test_guesses_of_a_team_are_corrected_by_what_its_tasks_took_and_no_others() -> None:
    placements = made()
    says = replace(ask("maps/a", 16, team="maps", seconds=360.0), basis="given")
    placements.want(KEY, {"train": says}, 99)
    placements.want(OTHER, {"train": replace(says, job="maps/b", team="ads")}, 99)
    for number in range(20):
        placements.sync(("maps", f"old{number}"), {}, ended(360.0, 3600), 100)
    mine, theirs = placements.scheduler.ask("maps/a", "train"), placements.scheduler.ask("maps/b", "train")
    assert mine is not None
    assert theirs is not None
    assert 2000 < mine.seconds < 3600
    assert mine.basis == "corrected"
    assert theirs.seconds == 360.0
    assert waiting(placements).ask == says, "what is known of the job stays what its author said"
    assert not placements.want(KEY, {"train": says}, 101)
    cycle(placements)
    placed = next(task for key in (KEY, OTHER) if (task := waiting(placements, key)).place is not None)
    place = placed.place
    assert place is not None
    told = placement_of(place, guess_s=guessed_s(place, placed.ask))
    assert told.guessed_seconds == pytest.approx(place.seconds * 360.0 / place.ask.seconds, abs=0.1)
    for number in range(20):
        placements.sync(("maps", f"old{number}"), {}, None, 102)
    placements.want(("maps", "c"), {"train": replace(says, job="maps/c")}, 103)
    fresh = placements.scheduler.ask("maps/c", "train")
    assert fresh is not None
    assert fresh.seconds == 360.0, "jobs that are deleted teach nothing any more"
