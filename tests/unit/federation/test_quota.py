"""What a team may hold: its own, what it may borrow, what its cohort leaves; and how its own comes back to it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.builders.worlds import A100, H100, HOUR, ask, decide, member, placed, running

from tuneyard.federation import POLICIES, Ask, Infeasible, Place, Preempt, Scheduler, Team, Wait

SKU = H100.name
BY_AGE = replace(POLICIES["tuneyard"], order="age")


def team(name: str, quota: int, borrowing: int | None = None, **more: str) -> Team:
    """A team with so many H100s, which may borrow so many more (None: all there are)."""
    return Team(name=name, quota={SKU: quota}, borrowing={} if borrowing is None else {SKU: borrowing}, **more)  # type: ignore[arg-type]


def test_own_quota_then_borrowed_and_no_further() -> None:
    asks = [ask(f"a{n}", 4, created=n) for n in range(4)]
    decisions = decide([member("east", 8, 8)], *asks, teams=(team("t", 4, 4),))
    assert set(placed(decisions)) == {"a0", "a1"}
    (first, _) = (decision for decision in decisions if isinstance(decision, Wait))
    assert first.reason == "east: 8 GPUs free; team t holds 8 h100-80gb of a quota of 4 and 4 that it may borrow"


def test_a_team_without_quota_takes_all_there_is() -> None:
    assert len(placed(decide([member("east", 8, 8)], *(ask(f"a{n}", 8) for n in range(2))))) == 2


def test_a_cohort_shares_what_its_teams_have() -> None:
    teams = (team("t", 4, cohort="c"), team("u", 4, cohort="c"))
    asks = [ask("a", 8, team="t"), ask("b", 8, team="u", created=1)]
    decisions = decide([member("east", 8, 8)], *asks, teams=teams)
    assert set(placed(decisions)) == {"a"}
    (waits,) = (decision for decision in decisions if isinstance(decision, Wait))
    assert "the teams of cohort c hold 8 of their 8 h100-80gb" in waits.reason


def test_a_closed_team_starts_nothing_and_says_why() -> None:
    (waits,) = decide([member("east", 8)], ask(), teams=(team("t", 8, closed="its budget of 100 is spent"),))
    assert isinstance(waits, Wait)
    assert waits.reason == "its budget of 100 is spent"


def test_quota_lowered_below_usage_ends_nobody_and_starts_nobody() -> None:
    holds = running("r", {"east-0": 8})
    decisions = decide([member("east", 0, 8)], ask("a", 1), running=(holds,), teams=(team("t", 4, 0),))
    assert [type(decision) for decision in decisions] == [Wait]
    (waits,) = decisions
    assert isinstance(waits, Wait)
    assert waits.reason == "east: 8 GPUs free; team t holds 8 h100-80gb of a quota of 4"


def test_more_than_a_team_may_ever_hold_fails_at_once() -> None:
    (never,) = decide([member("east", 8, 8)], ask("a", 16), teams=(team("t", 4, 4),))
    assert isinstance(never, Infeasible)
    assert never.reason == (
        "team t may hold at most 8 h100-80gb including borrowed quota, and 16 are asked for: ask for fewer, or raise its quota"
    )


def test_what_one_sku_lacks_in_room_and_another_in_quota_fails_at_once() -> None:
    """No SKU would ever do, though no cluster and no quota alone rules the ask out."""
    teams = (Team(name="t", quota={SKU: 4, A100.name: 16}, borrowing={SKU: 0, A100.name: 0}),)
    (never,) = decide([member("east", 8, 8), member("west", 8, sku=A100)], ask("a", 16), teams=teams)
    assert isinstance(never, Infeasible)
    assert never.reason == (
        "team t may hold at most 16 a100-80gb, 4 h100-80gb including borrowed quota, and no cluster has room for 16 a100-80gb: "
        "ask for fewer, or raise its quota of h100-80gb"
    )
    assert not any(isinstance(each, Infeasible) for each in decide([member("west", 8, 8, sku=A100)], ask("a", 16), teams=teams))


def test_an_attempt_that_has_ended_holds_machines_and_no_quota() -> None:
    """As on a member that is lost: its job is placed elsewhere, though nobody knows what is left there."""
    ghost = running("r", {"east-0": 8}, task="train/1", stopping=True, ended=True)
    away = replace(member("east", 0), usable=False, why_not="its heartbeat is late")
    decisions = decide([away, member("west", 8)], ask("r", 8), running=(ghost,), teams=(team("t", 8, 0),))
    assert placed(decisions) == {"r": "west"}
    assert not placed(decide([member("east", 0)], ask("r", 8), running=(ghost,), teams=(team("t", 8, 0),)))


def test_quota_is_given_back_by_those_in_other_clusters() -> None:
    """An urgent ask of a team at its quota waited for its own low job in another cluster, though there was room."""
    low = running("low", {"west-0": 8}, cluster="west", priority="low", ends=50 * HOUR)
    scheduler = Scheduler()
    for each in (member("east", 8), member("west", 8)):
        scheduler.set_member(each)
    scheduler.set_team(team("t", 8, 0))
    scheduler.hold(low, 0.0)
    scheduler.add(ask("now", 8, priority="urgent", clusters=("east",)))
    scheduler.add(ask("other", 8, team="u", seconds=50 * HOUR))
    (asked,) = scheduler.cycle(HOUR)
    assert isinstance(asked, Preempt)
    assert asked.victim.job == "low"
    assert scheduler.cycle(HOUR + 60) == []  # what is free in east is kept meanwhile
    scheduler.release("low", "train", HOUR + 120)
    decisions = scheduler.cycle(HOUR + 120)
    assert {each.ask.job: each.cluster for each in decisions if isinstance(each, Place)} == {"now": "east", "other": "west"}


def test_owners_come_before_those_who_would_borrow() -> None:
    """What a borrower took would be taken back from it at once."""
    borrower: Ask = ask("older", 8, team="u")
    owner = ask("younger", 8, created=HOUR)
    decisions = decide([member("east", 8)], borrower, owner, teams=(team("t", 8), team("u", 0)), now=HOUR)
    assert set(placed(decisions)) == {"younger"}


def test_a_team_that_nobody_has_described_has_no_limit_and_no_guarantee() -> None:
    assert placed(decide([member("east", 8)], ask("a", team="nobody"))) == {"a": "east"}


def late(job: str, *worlds: int, created: float = -2 * HOUR, **more: Any) -> Ask:
    """An ask that has waited for as long as it must before it may take anything back."""
    return ask(job, *worlds, created=created, **more)


class TestTakingBack:
    def test_what_others_have_borrowed_comes_back(self) -> None:
        guest = running("guest", {"east-0": 8}, team="u")
        decisions = decide([member("east", 0)], late("a"), running=(guest,), teams=(team("t", 8), team("u", 0)))
        asked, waits = decisions
        assert isinstance(asked, Preempt)
        assert asked.reason.startswith("team t reclaims quota that team u has borrowed, for a; ")
        assert isinstance(waits, Wait)

    def test_what_is_their_own_does_not(self) -> None:
        other = running("own", {"east-0": 8}, team="u")
        (waits,) = decide([member("east", 0)], late("a"), running=(other,), teams=(team("t", 8), team("u", 8)))
        assert isinstance(waits, Wait)

    def test_no_more_than_they_have_borrowed(self) -> None:
        """Eight of twelve are its own: one of its jobs of four goes, not two, though that would make room."""
        mine = tuple(running(f"r{n}", {f"east-{n}": 4}, team="u") for n in range(3))
        members = [member("east", 4, 4, 4)]
        decisions = decide(members, late("a", 16, unit=8), running=mine, teams=(team("t", 16), team("u", 8)))
        assert not [each for each in decisions if isinstance(each, Preempt)]
        decisions = decide(members, late("a", 8, unit=8), running=mine, teams=(team("t", 16), team("u", 8)))
        assert len([each for each in decisions if isinstance(each, Preempt)]) == 1

    def test_those_of_lower_priority_who_go_count_against_what_may_be_taken_back(self) -> None:
        """With its low job gone, the team is at its quota: the other one stays."""
        low = running("low", {"east-0": 8}, team="u", priority="low")
        other = running("other", {"east-1": 8}, team="u")
        decisions = decide([member("east", 0, 0)], late("a", 16), running=(low, other), teams=(team("t", 16), team("u", 8)))
        assert not [each for each in decisions if isinstance(each, Preempt)]

    def test_what_is_on_its_way_back_is_not_asked_for_again(self) -> None:
        going = running("going", {"east-0": 8}, team="u", stopping=True, ends=100.0)
        stays = running("stays", {"east-1": 8}, team="u")
        asks = (late("a", 8), late("b", 8, created=1 - 2 * HOUR))
        decisions = decide([member("east", 0, 0)], *asks, running=(going, stays), teams=(team("t", 16), team("u", 8)))
        assert not [each for each in decisions if isinstance(each, Preempt)]

    def test_not_twice_for_the_same_quota(self) -> None:
        """Each of two jobs is within the quota, both together are not: only one has somebody go."""
        guests = tuple(running(f"g{n}", {f"east-{n}": 8}, team="u") for n in range(2))
        asks = (late("a", 8), late("b", 8, created=1 - 2 * HOUR))
        decisions = decide([member("east", 0, 0)], *asks, running=guests, teams=(team("t", 8), team("u", 0)))
        assert [each.ask.job for each in decisions if isinstance(each, Preempt)] == ["a"]

    def test_only_within_the_cohort(self) -> None:
        guest = running("guest", {"east-0": 8}, team="u")
        teams = (team("t", 8, cohort="c"), team("u", 0, cohort="d"))
        (waits,) = decide([member("east", 0)], late("a"), running=(guest,), teams=teams)
        assert isinstance(waits, Wait)

    def test_a_team_makes_room_in_its_own_limit_by_priority(self) -> None:
        own = running("own", {"east-0": 8}, team="t")
        decisions = decide([member("east", 0, 8)], late("a", priority="high"), running=(own,), teams=(team("t", 8, 0),))
        assert [each.victim.job for each in decisions if isinstance(each, Preempt)] == ["own"]

    def test_who_has_just_begun_is_not_asked_yet(self) -> None:
        """Else jobs that borrow and give back in turn would do nothing but start and stop."""
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8))
        for each in (team("t", 8), team("u", 0)):
            scheduler.set_team(each)
        scheduler.hold(running("guest", {"east-0": 8}, team="u", started=-60.0), 0.0)
        scheduler.add(late("a"))

        assert scheduler.cycle(0.0) == []
        assert scheduler.again_at == scheduler.policy.settled_late_s - 60.0
        assert scheduler.cycle(scheduler.again_at - 1.0) == []
        (asked,) = scheduler.cycle(scheduler.again_at)
        assert isinstance(asked, Preempt)
        assert scheduler.cycle(scheduler.policy.settled_s) == []
        assert scheduler.again_at == math.inf

    @pytest.mark.parametrize(("ran_s", "preempted", "goes"), [(1799.0, 0, False), (1800.0, 0, True), (1800.0, 1, False), (3600.0, 1, True)])
    def test_who_began_while_the_owner_waited_is_spared_for_half_an_hour(self, ran_s: float, preempted: int, goes: bool) -> None:
        """Borrowers of less than two hours that follow each other kept owners out for 55 hours."""
        guest = running("guest", {"east-0": 8}, team="u", started=-ran_s, preempted=preempted, ends=9 * HOUR)
        decisions = decide([member("east", 0)], late("a"), running=(guest,), teams=(team("t", 8), team("u", 0)))
        assert bool([each for each in decisions if isinstance(each, Preempt)]) == goes

    def test_who_has_just_come_takes_nothing_back_yet(self) -> None:
        """Most of what is borrowed ends while it waits."""
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8))
        for each in (team("t", 8), team("u", 0)):
            scheduler.set_team(each)
        scheduler.hold(running("guest", {"east-0": 8}, team="u", started=-9 * HOUR, ends=9 * HOUR), 0.0)
        scheduler.add(ask("a", created=-60.0))
        assert scheduler.cycle(0.0) == []
        assert scheduler.again_at == scheduler.policy.settled_s - 60.0
        (asked,) = scheduler.cycle(scheduler.again_at)
        assert isinstance(asked, Preempt)

    def test_priority_does_not_wait_for_that(self) -> None:
        low = running("low", {"east-0": 8}, team="u", priority="low", started=-60.0)
        decisions = decide([member("east", 0)], ask("a"), running=(low,), teams=(team("t", 8), team("u", 0)))
        assert [each.victim.job for each in decisions if isinstance(each, Preempt)] == ["low"]

    def test_no_circle(self) -> None:
        """Two teams with more work than the machines hold end with what is theirs, and nobody goes any more."""
        scheduler = Scheduler()
        scheduler.set_member(member("east", 8, 8, 8))
        for name, quota in (("t", 8), ("u", 8)):
            scheduler.set_team(team(name, quota))
        asks = {(name, n): ask(f"{name}{n}", 8, team=name, seconds=1000 * HOUR) for name in ("t", "u") for n in range(3)}
        for (name, _), each in asks.items():
            if name == "u":
                scheduler.add(each)
        gone = []
        for minute in range(1, 200):
            now = minute * 60.0
            if minute == 2:
                for (name, _), each in asks.items():
                    if name == "t":
                        scheduler.add(each)
            for decision in scheduler.cycle(now):
                if isinstance(decision, Preempt):
                    gone.append(decision.victim.job)
                    scheduler.release(decision.victim.job, "train", now)
                    scheduler.add(next(each for each in asks.values() if each.job == decision.victim.job))
        assert len(gone) == 1
        assert sorted(attempt.team for attempt in scheduler.running) == ["t", "u", "u"]


@pytest.mark.parametrize("mine", [True, False])
def test_a_large_job_has_its_teams_quota_kept_together(mine: bool) -> None:
    """Machines enough, quota of eight: the small ones of the team may not take it piece by piece; those of others may start."""
    holds = running("r", {"east-0": 4}, ends=HOUR)
    small: Ask = ask("small", 4, created=1, seconds=10 * HOUR, team="t" if mine else "u")
    decisions = decide([member("east", 4, 8)], ask("large", 8), small, running=(holds,), teams=(team("t", 8, 0),), policy=BY_AGE)
    assert set(placed(decisions)) == (set() if mine else {"small"})
    short = ask("short", 4, created=1, seconds=HOUR)
    decisions = decide([member("east", 4, 8)], ask("large", 8), short, running=(holds,), teams=(team("t", 8, 0),), policy=BY_AGE)
    assert set(placed(decisions)) == {"short"}


@pytest.mark.parametrize(("seconds", "starts"), [(10 * HOUR, False), (HOUR, True)])
def test_a_gang_that_lacks_both_has_gpus_and_quota_kept(seconds: float, starts: bool) -> None:
    """In a cohort whose quotas are all machines, who lacks GPUs lacks quota as well: a gang of 128 waited 172 hours, first in the queue."""
    stays = running("stays", {"east-0": 8}, team="u", ends=HOUR, preemptible=False)
    teams = (team("t", 16, cohort="c"), team("u", 0, cohort="c"))
    small = ask("small", 8, team="u", created=1, seconds=seconds)
    decisions = decide([member("east", 0, 8)], ask("large", 16), small, running=(stays,), teams=teams)
    assert set(placed(decisions)) == ({"small"} if starts else set())


def test_gpus_of_a_gang_that_awaits_its_quota_are_lent_until_then() -> None:
    """Its quota is not, once it is due."""
    holds = running("r", {"east-0": 4}, ends=HOUR)
    large = ask("large", 8, created=-90 * 24 * HOUR)
    short = (ask("mine", 4, created=1, seconds=HOUR), ask("other", 8, created=1, seconds=HOUR, team="u"))
    decisions = decide([member("east", 4, 8)], large, *short, running=(holds,), teams=(team("t", 8, 0),))
    assert set(placed(decisions)) == {"other"}


@pytest.mark.parametrize(("hours", "starts"), [(1, True), (100, False)])
def test_quota_does_not_idle_for_days_while_its_own_team_holds_the_rest(hours: float, starts: bool) -> None:
    """It is lent for a tenth of the time until the ask that is due has all of it, as GPUs are."""
    holds = running("r", {"east-0": 8}, ends=10 * 24 * HOUR, preemptible=False)
    due, short = ask("large", 16, created=-90 * 24 * HOUR), ask("short", 4, created=1, seconds=hours * HOUR)
    decisions = decide([member("east", 0, 8, 8)], due, short, running=(holds,), teams=(team("t", 16, 0),))
    assert set(placed(decisions)) == ({"short"} if starts else set())


def test_an_ask_beyond_the_limit_of_its_team_takes_no_reservation_from_a_gang() -> None:
    """It awaits its quota for ten days. Without a reservation the gang would wait for as long as small jobs come."""
    holds = running("r", {"east-0": 8}, ends=10 * 24 * HOUR, preemptible=False)
    others = [running(f"x{n}", {f"east-{n}": 8}, ends=3 * HOUR, team="v", preemptible=False) for n in range(1, 7)]
    asks = (ask("beyond", 16, created=-90 * 24 * HOUR), ask("gang", 56, created=-2, team="u"), ask("small", team="v", seconds=20 * HOUR))
    decisions = decide([member("east", *[0] * 7, 8)], *asks, running=(holds, *others), teams=(team("t", 16, 0),))
    assert placed(decisions) == {}


def test_usage_of_another_sku_does_not_count() -> None:
    decisions = decide([member("east", 8)], ask("a"), teams=(Team(name="t", quota={SKU: 8, "a100-80gb": 0}, borrowing={SKU: 0}),))
    assert isinstance(decisions[0], Place)
