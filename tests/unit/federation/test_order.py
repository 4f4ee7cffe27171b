"""Who is first, and where: priority, then the deadline of fairness; the SKU and cluster with the least predicted time, money, and mess."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders.worlds import A100, H100, HOUR, ask, decide, member, placed, running

from tuneyard.federation import POLICIES, Ask, Place, Policy, SkuFacts, Team, Wait

L40S = SkuFacts("l40s", 8)


def first_of(*asks: object, **more: object) -> str:
    """Who gets the one machine."""
    (job,) = placed(decide([member("east", 8)], *asks, **more))  # type: ignore[arg-type]
    return job


def put_back(seconds: float, gpus: int = 8) -> float:
    stretched, longest = 10 * gpus * seconds, 60 * 24 * HOUR
    return longest * stretched / (longest + stretched)


class TestOrder:
    def test_priority_before_everything(self) -> None:
        assert first_of(ask("short", seconds=60.0), ask("urgent", seconds=99 * HOUR, priority="urgent", created=9e5), now=9e5) == "urgent"

    def test_the_shorter_overtakes_the_longer(self) -> None:
        assert first_of(ask("long", seconds=10 * HOUR), ask("short", seconds=HOUR, created=60.0)) == "short"

    def test_but_not_for_ever(self) -> None:
        """By about ten seconds of waiting for each second of one GPU that it is shorter; less where that comes to weeks."""
        gap = put_back(10 * HOUR) - put_back(HOUR)
        assert gap == pytest.approx(438.5 * HOUR, rel=0.01)
        assert first_of(ask("long", seconds=10 * HOUR), ask("short", seconds=HOUR, created=gap - 1)) == "short"
        assert first_of(ask("long", seconds=10 * HOUR), ask("short", seconds=HOUR, created=gap + 1)) == "long"

    def test_a_team_that_had_much_waits(self) -> None:
        teams = (Team(name="had", used_s={"h100-80gb": 1e6}, used_at=0.0), Team(name="new"))
        assert first_of(ask("a", team="had"), ask("b", team="new", created=60.0), teams=teams) == "b"

    def test_what_a_team_had_long_ago_counts_less(self) -> None:
        teams = (Team(name="had", used_s={"h100-80gb": 1e6}, used_at=0.0), Team(name="new"))
        weeks = 20 * 7 * 86400.0
        asks = (ask("a", team="had", created=weeks), ask("b", team="new", created=weeks + 60.0))
        assert first_of(*asks, teams=teams, now=weeks + 60) == "a"

    def test_a_team_of_more_weight_is_entitled_to_more(self) -> None:
        teams = (Team(name="a", used_s={"h100-80gb": 1e6}, weight=1.0), Team(name="b", used_s={"h100-80gb": 1e6}, weight=4.0))
        assert first_of(ask("a", team="a"), ask("b", team="b", created=60.0), teams=teams) == "b"

    @pytest.mark.parametrize(
        ("policy", "first"), [("fifo-first-fit", "old"), ("best-effort-fifo", "old"), ("shortest-first-oracle", "short")]
    )
    def test_other_policies(self, policy: str, first: str) -> None:
        assert first_of(ask("old", seconds=9 * HOUR), ask("short", created=60.0), policy=policy) == first

    def test_strict_fifo_lets_nobody_past(self) -> None:
        asks = (ask("large", 16), ask("small", 8, created=1))
        assert placed(decide([member("east", 8, 0)], *asks, policy="fifo-first-fit")) == {}
        assert set(placed(decide([member("east", 8, 0)], *asks, policy="best-effort-fifo"))) == {"small"}


class TestWhere:
    def test_the_faster_sku(self) -> None:
        members = [member("a", 8, sku=L40S), member("b", 8, sku=H100), member("c", 8, sku=A100)]
        assert placed(decide(members, ask())) == {"a": "b"}

    def test_unless_it_costs_more_than_the_time_is_worth(self) -> None:
        members = [member("a", 8, sku=replace(A100, price_per_gpu_hour=1.0)), member("b", 8, sku=replace(H100, price_per_gpu_hour=9.0))]
        assert placed(decide(members, ask())) == {"a": "b"}
        thrifty = replace(POLICIES["tuneyard"], seconds_per_price=3600.0)
        assert placed(decide(members, ask(), policy=thrifty)) == {"a": "a"}

    def test_speed_is_the_policys_to_say(self) -> None:
        def speed(ask: Ask, sku: str, workers: int) -> float:
            return ask.seconds * (9.0 if sku == H100.name else 8 / workers)

        slow_h100 = replace(POLICIES["tuneyard"], speed=speed)
        members = [member("a", 8, sku=A100), member("b", 8, sku=H100)]
        (place,) = decide(members, ask(), policy=slow_h100)
        assert isinstance(place, Place)
        assert (place.cluster, place.seconds) == ("a", HOUR)

    def test_beside_its_data(self) -> None:
        members = [member("a", 8), member("b", 8, near=("s3://b/",))]
        assert placed(decide(members, ask(near=("s3://b/corpus",)))) == {"a": "b"}
        assert placed(decide(members, ask(near=("s3://c/corpus",)))) == {"a": "a"}

    def test_but_a_much_faster_sku_is_worth_the_way(self) -> None:
        members = [member("a", 8, sku=L40S, near=("s3://a/",)), member("b", 8)]
        assert placed(decide(members, ask(near=("s3://a/x",), seconds=10 * HOUR))) == {"a": "b"}

    def test_as_the_asker_prefers_among_equals(self) -> None:
        members = [member("a", 8), member("b", 8)]
        assert placed(decide(members, ask(clusters=("b", "a")))) == {"a": "b"}

    def test_small_ones_fill_torn_machines_and_whole_ones_stay_whole(self) -> None:
        (place,) = decide([member("a", 8, 8), member("b", 8, 3)], ask("s", 2))
        assert isinstance(place, Place)
        assert place.nodes == {"b-1": 2}

    def test_a_node_that_failed_is_not_used_where_others_would_do_later(self) -> None:
        avoid = frozenset({("east", "east-0")})
        holds = running("r", {"east-1": 8})
        (waits,) = decide([member("east", 8, 0)], ask(avoid=avoid), running=(holds,))
        assert isinstance(waits, Wait)
        assert waits.starts == HOUR
        assert waits.reason == "east: 0 of 8 GPUs free, enough at about 1970-01-01 01:00 UTC when r ends"

    def test_not_on_it_either_where_a_reservation_takes_the_others(self) -> None:
        """Room beside the failed node is kept for the first: the second waits rather than go there."""
        policy: Policy = replace(POLICIES["tuneyard"], order="age")
        holds = running("r", {"east-2": 8})
        asks = (ask("first", 16, unit=8), ask("second", 8, created=1, seconds=9 * HOUR, avoid=frozenset({("east", "east-0")})))
        decisions = decide([member("east", 0, 8, 0), member("west", 0)], *asks, running=(holds,), policy=policy)
        assert placed(decisions) == {}

    def test_nothing_on_a_cluster_that_is_cordoned(self) -> None:
        members = [member("a", 8, usable=False, why_not="cordoned by ops"), member("b", 0)]
        (waits,) = decide(members, ask())
        assert isinstance(waits, Wait)
        assert waits.reasons["a"] == "cordoned by ops"
