"""Why somebody waits, cluster by cluster, in the words that a user reads; and what would help one that could never run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.worlds import A100, CPU, H100, HOUR, ask, decide, member, running

from tuneyard.federation import Ask, Infeasible, Member, Running, Team, Wait


def why(members: list[Member], one: Ask, *attempts: Running, teams: tuple[Team, ...] = (), now: float = 0.0) -> Wait:
    (wait,) = (each for each in decide(members, one, running=attempts, teams=teams, now=now) if isinstance(each, Wait))
    return wait


def test_each_cluster_has_its_reason() -> None:
    members = [
        member("east", 4, 4),
        member("north", 0, sku=A100),
        member("south", 8, usable=False, why_not="cordoned: new drivers"),
        member("west", 3),
    ]
    wait = why(members, ask("a", 8, unit=8, skus=("h100-80gb",)), running("maps/x", {"east-0": 4}, ends=3 * HOUR))
    assert wait.reasons == {
        "east": "8 GPUs free, at most 4 of 8 on one machine, enough at about 1970-01-01 03:00 UTC when maps/x ends",
        "north": "has none of h100-80gb",
        "south": "cordoned: new drivers",
        "west": "3 of 8 GPUs free",
    }
    assert wait.starts == 3 * HOUR


def test_those_in_the_way_are_named_and_the_rest_counted() -> None:
    attempts = [running(f"r{n}", {f"east-{n}": 8}, ends=HOUR + n) for n in range(5)]
    wait = why([member("east", *[0] * 5)], ask("a", 40), *attempts)
    assert wait.reasons["east"] == (
        "0 of 5 pods of 8 GPUs find room (0 GPUs free), enough at about 1970-01-01 01:00 UTC when r4, r3, r2 and 2 more end"
    )


def test_who_is_on_its_way_out_stops() -> None:
    wait = why([member("east", 0)], ask("a"), running("r", {"east-0": 8}, stopping=True, ends=120.0))
    assert wait.reasons == {"east": "0 of 8 GPUs free, enough at about 1970-01-01 00:02 UTC when r stops"}


def test_what_others_than_tuneyard_hold_has_no_end() -> None:
    assert why([member("east", 2)], ask("a")).reasons == {"east": "2 of 8 GPUs free"}


def test_a_cluster_of_that_name_there_is_not() -> None:
    assert why([member("east", 0)], ask("a", clusters=("east", "mars"))).reasons["mars"] == "there is no such cluster"


def test_no_cluster_at_all() -> None:
    assert why([], ask("a")).reason == "there is no cluster"


def test_quota_by_cluster() -> None:
    team = Team(name="t", quota={"h100-80gb": 8}, borrowing={"h100-80gb": 0})
    wait = why([member("east", 8), member("north", 8)], ask("a"), running("r", {"north-0": 8}, cluster="north"), teams=(team,))
    assert wait.reasons["east"] == "8 GPUs free; team t holds 8 h100-80gb of a quota of 8"


def test_an_owner_is_told_when_it_gets_its_quota_back() -> None:
    teams = (Team(name="t", quota={"h100-80gb": 8}), Team(name="u", quota={"h100-80gb": 0}))
    guest = running("guest", {"east-0": 8}, team="u", started=0.0, ends=50 * HOUR)
    before = why([member("east", 0)], ask("a"), guest, teams=teams, now=HOUR)
    assert before.held == "team t is within its quota: it reclaims GPUs that other teams borrow from 1970-01-01 02:00 UTC on"
    late = replace(guest, started=1.9 * HOUR)
    after = why([member("east", 0)], ask("a"), late, teams=teams, now=2 * HOUR)
    assert after.held == "team t is within its quota: it reclaims GPUs that other teams have borrowed for 30 min"
    for stays in (replace(guest, team="t"), replace(guest, preemptible=False), replace(guest, priority="high")):
        assert why([member("east", 0)], ask("a"), stays, teams=teams, now=HOUR).held == ""


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (
            ask("a", 16, skus=("a100-80gb",)),
            "task train needs 16 x a100-80gb in one cluster, and the most that one has is 8 a100-80gb; "
            "allow h100-80gb, or ask for fewer workers",
        ),
        (
            ask("a", 64),
            "task train needs 64 x any SKU in one cluster, and the most that one has is 8 a100-80gb, 16 h100-80gb; "
            "ask for at most 16 workers",
        ),
        (
            ask("a", 1, skus=("b200",)),
            "task train needs 1 x b200 in one cluster, and the most that one has is none of b200; allow a100-80gb or cpu or h100-80gb, "
            "or ask for fewer workers",
        ),
        (
            ask("a", 16, unit=16),
            "task train needs 16 x any SKU in one cluster, and the most that one has is 8 a100-80gb, 4 cpu, 16 h100-80gb",
        ),
    ],
)
def test_what_would_help_one_that_could_never_run(one: Ask, reason: str) -> None:
    members = [member("east", 0, 0), member("north", 0, sku=A100)]
    if "cpu" in reason:
        members.append(member("lab", 0, sku=CPU))
    (never,) = decide(members, one)
    assert isinstance(never, Infeasible)
    assert never.reason == reason


def test_a_time_beyond_the_calendar_is_no_error() -> None:
    wait = why([member("east", 0)], ask("a"), running("r", {"east-0": 8}, ends=1e15))
    assert wait.reasons == {"east": "0 of 8 GPUs free, enough at about a time after the year 9999 when r ends"}


def test_a_task_that_runs_is_not_spoken_of() -> None:
    assert decide([member("east", 0)], ask("r"), running=(running("r", {"east-0": 8}),)) == []


def test_the_slots_of_a_machine_without_gpus() -> None:
    assert why([member("lab", 1, sku=CPU)], ask("a", 2)).reasons == {"lab": "1 of 2 GPUs free"}


def test_sizes_that_do_not_divide() -> None:
    members = [member("east", 8, sku=H100), member("wide", usable=False, why_not="away")]
    wait = why(members, ask("a", 9, unit=9))
    assert wait.reasons["east"] == "9 workers do not divide over machines of 8 h100-80gb"
