"""Nobody waits for ever, and nobody is asked to go again and again for the same ask."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders.worlds import ask, decide, running
from tests.builders.worlds import member as worlds_member
from tests.unit.federation.simulated import SKU, job, member, play

from tuneyard.federation import POLICIES, Preempt, Running, Team
from tuneyard.federation.simulation import Checkpoints, Scenario, TraceJob, simulate

HOUR = 3600.0
POLICY = POLICIES["tuneyard"]
START_S = POLICY.grace_s + POLICY.restart_s


def team(name: str, quota: int) -> Team:
    return Team(name=name, quota={SKU.name: quota}, cohort="all")


def test_an_owner_gets_what_was_freed_for_it() -> None:
    """Who goes is below its team's quota then and ranks before the asker: it took back what it had freed, 96 times in 52 hours."""
    jobs = (job("b0", 0, 47 * HOUR, team="b"), job("b1", 1, 47 * HOUR, team="b"), job("a", HOUR, 400 * HOUR, 4, team="a"))
    run = play(*jobs, members=(member("east", 2),), teams=(team("a", 4), team("b", 12)))
    waits = {life.job.name: life.waited_s for life in run.lives}
    assert waits["a"] == POLICY.settled_s + POLICY.grace_s
    assert sum(life.preemptions for life in run.lives) == 1
    assert all(life.ended_at is not None for life in run.lives)


def test_who_was_asked_before_is_left_alone_for_longer() -> None:
    """Owners who come every two hours end a borrower's work less and less often."""
    owners = [job(f"a{number}", 2 * HOUR * number, 0.5 * HOUR, team="a") for number in range(1, 13)]
    run = play(job("b", 0, 20 * HOUR, team="b"), *owners, teams=(team("a", 8), team("b", 0)))
    borrower = run.lives[0]
    assert 1 <= borrower.preemptions <= 5
    assert all(life.waited_s <= POLICY.longest_settled_s + START_S + 0.5 * HOUR * len(owners) for life in run.lives[1:])


def test_quota_that_others_have_gone_for_is_not_lent_on_the_word_of_who_has_overrun() -> None:
    """A job that ran on past its prediction counted as quota that is back: of two jobs of low priority that had to go, one took what the
    other had freed, by turns, 2,470 times each."""
    long = replace(job("long", 0, 100 * HOUR, 6, team="a"), stated_over_true=0.001)
    low = [job("low1", 60, 50 * HOUR, 1, team="a", priority="low"), job("low2", 2 * HOUR + 60, 50 * HOUR, 2, team="a", priority="low")]
    limited = Team(name="a", quota={SKU.name: 2}, borrowing={SKU.name: 8}, cohort="all")
    run = play(long, *low, job("mine", 2 * HOUR, 2 * HOUR, 4, team="a"), members=(member("east", 2),), teams=(limited, team("b", 14)))
    lives = {life.job.name: life for life in run.lives}
    assert lives["mine"].waited_s <= 4 * POLICY.grace_s
    assert [lives[name].preemptions for name in ("low1", "low2", "long")] == [1, 0, 0]


def test_a_cluster_is_not_emptied_for_who_cannot_start_for_days() -> None:
    """A gang of a minute that was due drained 32 GPUs for as long as a job without checkpoints ran on one of them."""
    long = job("long", 0, 96 * HOUR, 1, team="long")
    small = [job(f"s{number}", number * HOUR / 2, HOUR, 4, team="abcd"[number % 4]) for number in range(120)]
    scratch = Scenario(policy=POLICY.name, noise=0.0, checkpoints=Checkpoints(every_s=None), until_s=80 * HOUR)
    run = simulate([long, job("gang", 2 * HOUR, 60, 32, team="gang"), *small], [member("east", 4)], scratch, np.random.default_rng(1))
    ended = [life for life in run.lives if life.job.name.startswith("s") and life.ended_at is not None]
    assert len(ended) == len(small)
    assert max(life.waited_s for life in ended) < 12 * HOUR


def test_a_flood_of_small_jobs_does_not_keep_others_out() -> None:
    """400 jobs of an hour on 8 GPUs: others, who ask for less than their share, waited 44 hours in the median."""
    flood = [job(f"f{number}", 0, HOUR, 1, team="flood") for number in range(400)]
    others = [job(f"{team}{hour}", hour * HOUR + 60, 2 * HOUR, 1, team=team) for hour in range(24) for team in "xy"]
    run = play(*flood, *others)
    waits = sorted(life.waited_s for life in run.lives[len(flood) :])
    assert waits[len(waits) // 2] <= 6 * HOUR
    assert waits[-1] <= 8 * HOUR


def test_a_team_that_uses_its_own_quota_is_not_put_back_for_that() -> None:
    busy = [job(f"b{number}", 600 * number, HOUR, 4, team="busy") for number in range(60)]
    idle = job("late", 12 * HOUR, HOUR, 4, team="idle")
    waiting = job("b-late", 12 * HOUR - 60, HOUR, 4, team="busy")
    run = play(*busy, waiting, idle, teams=(team("busy", 8), team("idle", 0)))
    ends = {life.job.name: life.ended_at for life in run.lives}
    assert all(end is not None for end in ends.values())
    assert (ends["b-late"] or 0) <= (ends["late"] or 0)


floods = st.sampled_from([(0.05, 0.2), (0.3, 0.9), (0.5, 1.9), (1.9, 2.6), (3.0, 8.0)])


@settings(max_examples=25, deadline=None)
@given(hours=floods, size=st.sampled_from([1, 2, 4, 8]), noise=st.sampled_from([0.0, 0.7]), seed=st.integers(0, 999))
def test_owners_start_in_time_whatever_another_team_floods_with(hours: tuple[float, float], size: int, noise: float, seed: int) -> None:
    """Four teams own a quarter each. Jobs of half an hour to two of one team kept the others out for 55 hours, without a preemption."""
    chance = np.random.default_rng(seed)
    flood = [job(f"x{number}", int(chance.uniform(0, 600)), int(chance.uniform(*hours) * HOUR), 1, team="x") for number in range(600)]
    owners = [job(f"{name}{number}", 700 + number, 4 * HOUR, size, team=name) for name in "abc" for number in range(16 // size)]
    run = play(*flood, *owners, members=(member("m", 8),), teams=tuple(team(name, 16) for name in "xabc"), noise=noise, until_s=5 * HOUR)
    first = {name: min(life.waited_s for life in run.lives if life.job.team == name and life.attempts) for name in "abc"}
    assert max(first.values()) <= POLICY.settled_s + POLICY.settled_late_s + POLICY.grace_s


asks = st.lists(
    st.tuples(
        st.integers(0, 40_000),
        st.integers(60, 60_000),
        st.sampled_from([1, 1, 2, 4, 8]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["low", "normal", "normal", "normal", "high"]),
    ),
    min_size=2,
    max_size=16,
)


@settings(max_examples=150, deadline=None)
@given(rows=asks, nodes=st.integers(1, 3), shares=st.tuples(st.integers(0, 3), st.integers(0, 3)), noise=st.sampled_from([0.0, 0.7]))
def test_all_that_wait_start_once_nobody_comes_any_more(
    rows: list[tuple[int, int, int, str, str]], nodes: int, shares: tuple[int, int], noise: float
) -> None:
    """All has ended by the time that it takes one after another, each start with its grace and the longest time for which borrowers are
    left alone; and nobody is asked to go more often than there are others to ask."""
    gpus = 8 * nodes
    quotas = [gpus * share // 8 for share in (*shares, 8 - sum(shares))]
    jobs: list[TraceJob] = [job(f"j{number}", *row) for number, row in enumerate(rows)]
    last_s = max(one.submit_s for one in jobs)
    starts = len(jobs) ** 2
    bound_s = last_s + sum(one.duration_s for one in jobs) + starts * START_S + len(jobs) * POLICY.longest_settled_s
    teams = tuple(team(name, quota) for name, quota in zip("abc", quotas, strict=True))
    run = play(*jobs, members=(member("east", nodes),), teams=teams, noise=noise, until_s=bound_s)
    assert all(life.ended_at is not None for life in run.lives)
    assert all(life.preemptions < len(jobs) for life in run.lives)


def stream(days: int, *, gpus: int, seed: int = 5) -> list[TraceJob]:
    """Small jobs of four teams that keep so many GPUs in use at a load of about nine tenths."""
    rng, jobs, at = np.random.default_rng(seed), [], 0.0
    while at < days * 24 * HOUR:
        size, duration_s = int(rng.choice([1, 1, 1, 2, 4, 8])), float(rng.lognormal(np.log(2 * HOUR), 1.0))
        jobs.append(job(f"s{len(jobs)}", int(at), int(duration_s) + 1, size, team="abcd"[len(jobs) % 4]))
        at += float(rng.exponential(2.83 * 3.3 * HOUR / (gpus * 0.9)))
    return jobs


def test_a_large_gang_does_not_wait_for_weeks_behind_small_jobs() -> None:
    """It waited 19 days of 40; and where one job of a single GPU took 50 days instead of four hours, 49 days."""
    gang = job("gang", int(48 * HOUR), 4 * HOUR, 32, team="e")
    run = play(*stream(20, gpus=32), gang, members=(member("east", 4),), noise=0.7)
    (found,) = (life for life in run.lives if life.job.name == "gang")
    assert 10 * 4 * HOUR / 3 <= found.waited_s <= 4 * 24 * HOUR
    assert all(life.ended_at is not None for life in run.lives)
    assert max(life.preemptions for life in run.lives) <= 10


NOW = 100 * HOUR


def gang_of(*attempts: Running, teams: tuple[Team, ...] = (), created: float = 0.0) -> set[str]:
    """Jobs that are asked to go for a gang of 8 that has waited since `created` for an hour of work."""
    wanted = ask("gang", 8, created=created)
    decisions = decide([worlds_member("east", 0)], wanted, running=attempts, teams=teams, now=NOW)
    return {each.victim.job for each in decisions if isinstance(each, Preempt)}


def test_who_may_be_asked_by_a_gang_that_has_starved() -> None:
    settled = running("r", {"east-0": 8}, team="other", ends=NOW + 50 * HOUR, saved=NOW - HOUR)
    assert gang_of(settled) == {"r"}
    assert gang_of(replace(settled, saved=NOW - 2 * HOUR)) == set(), "it would lose too much"
    assert gang_of(settled, created=NOW - 9 * HOUR) == set(), "it has waited for less than ten times its duration"
    assert gang_of(replace(settled, started=NOW - 60.0)) == set(), "it has just begun"
    owner = Team(name="other", quota={"h100-80gb": 8})
    assert gang_of(settled, teams=(owner,)) == set(), "a quota is its team's"
    assert gang_of(settled, teams=(replace(owner, quota={"h100-80gb": 4}),)) == {"r"}
    assert gang_of(replace(settled, team="t")) == {"r"}, "its own team's"
    beyond = Team(name="t", quota={"h100-80gb": 4})
    assert gang_of(settled, teams=(beyond,)) == set(), "who has a quota has no claim beyond it"
