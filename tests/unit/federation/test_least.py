"""Asks that know on how many GPUs of each SKU their model fits: no smaller world starts, and words say what is missing."""

from __future__ import annotations

import pytest
from tests.builders.worlds import CPU, H100, HOUR, ask, decide, member, placed, running

from tuneyard.federation import FITS_NEVER, Ask, Infeasible, Place, Preempt, Running, SkuFacts, Team, Wait, by_roofline

L40S = SkuFacts("l40s-48gb", 8)
ONE_L40S = SkuFacts("l40s-48gb", 1)
LEAST = (("cpu", FITS_NEVER), ("h100-80gb", 8), ("l40s-48gb", 16))


def model(job: str = "a", *worlds: int, **more: object) -> Ask:
    """An ask of any SKU whose model needs 8 H100s or 16 L40S."""
    return ask(job, *(worlds or (8, 4, 2, 1, 16)), **{"least": LEAST, **more})


def test_a_world_that_does_not_fit_does_not_start() -> None:
    west, east = member("west", 1, sku=ONE_L40S), member("east", 8)
    (place,) = decide([west, member("cpus", 4, sku=CPU), east], model())
    assert isinstance(place, Place)
    assert (place.cluster, place.workers) == ("east", 8)
    (unknown,) = decide([west], ask("a", 8, 4, 2, 1))
    assert isinstance(unknown, Place), "as much is known of most asks"


def test_each_sku_has_its_own_least() -> None:
    (place,) = decide([member("east", 4), member("west", 8, 8, sku=L40S)], model())
    assert isinstance(place, Place)
    assert (place.cluster, place.workers) == ("west", 16)


def test_a_sku_that_is_not_listed_is_not_used_until_it_is() -> None:
    (never,) = decide([member("new", 8, sku=SkuFacts("b200-192gb", 8))], model())
    assert isinstance(never, Infeasible)
    assert never.reason == "the model of task train does not fit on b200-192gb"


def test_what_is_free_is_told_from_what_is_not_enough() -> None:
    """A kind of ask counts as blocked where its smallest world finds no room: of each SKU, not of all."""
    busy = running("r", {"east-0": 8})
    decisions = decide([member("east", 0), member("west", 8, 8, sku=L40S)], model("a"), model("b", created=1.0), running=(busy,))
    assert placed(decisions) == {"a": "west"}


def test_each_cluster_says_why_the_model_does_not_fit_there() -> None:
    busy = running("r", {"east-0": 8}, ends=3 * HOUR)
    (wait,) = decide([member("east", 0), member("west", 1, sku=ONE_L40S), member("cpus", 4, sku=CPU)], model(), running=(busy,))
    assert isinstance(wait, Wait)
    assert wait.reasons == {
        "cpus": "the model is too large for cpu, unless its task names cpu",
        "east": "0 of 8 GPUs free, enough at about 1970-01-01 03:00 UTC when r ends",
        "west": "the model does not fit on 1 x l40s-48gb: it needs at least 16",
    }
    (wait,) = decide([member("east", 0), member("west", 8, 8, sku=L40S)], model("a", 8), running=(busy,))
    assert isinstance(wait, Wait)
    assert wait.reasons["west"] == "the model does not fit on 8 x l40s-48gb: it needs at least 16"


def test_what_fits_nowhere_is_said_at_once_with_what_helps() -> None:
    members = [member("east", 4, sku=SkuFacts("h100-80gb", 4)), member("west", 1, sku=ONE_L40S), member("cpus", 4, sku=CPU)]
    (never,) = decide(members, model(fit="train an adapter: set method to lora"))
    assert isinstance(never, Infeasible)
    assert never.reason == (
        "the model of task train is too large for cpu, unless its task names cpu; does not fit on 4 x h100-80gb: it needs at least 8; "
        "does not fit on 1 x l40s-48gb: it needs at least 16; what helps: train an adapter: set method to lora"
    )


def test_a_team_that_may_not_hold_what_the_model_needs_is_told_so() -> None:
    team = Team(name="t", quota={"h100-80gb": 4, "l40s-48gb": 64}, borrowing={"h100-80gb": 0, "l40s-48gb": 0})
    (never,) = decide([member("east", 8)], model(), teams=(team,))
    assert isinstance(never, Infeasible)
    assert never.reason == (
        "team t may hold at most 4 h100-80gb including borrowed quota, and 8 are asked for: ask for fewer, or raise its quota"
    )


def test_a_model_of_which_nothing_is_known_says_that_nobody_checked() -> None:
    busy = running("r", {"east-0": 8})
    (wait,) = decide([member("east", 0)], ask("a", 8, fit="its model is not known"), running=(busy,))
    assert isinstance(wait, Wait)
    assert wait.reason.endswith("when r ends; its model is not known")


def low(job: str, gpus: dict[str, int], **more: object) -> Running:
    return running(job, gpus, priority="low", ends=9 * HOUR, **more)


def test_others_are_asked_to_go_for_what_the_model_needs_and_not_for_less() -> None:
    """Of the L40S sixteen must become free; one that holds a single GPU there would go for nothing."""
    l40s = [low(f"w{n}", {f"west-{n}": 8}, cluster="west", sku="l40s-48gb") for n in range(2)]
    members = [member("west", 0, 0, sku=L40S)]
    going = [each for each in decide(members, model(priority="high"), running=tuple(l40s)) if isinstance(each, Preempt)]
    assert sorted(each.victim.job for each in going) == ["w0", "w1"]
    small = [member("west", 0, sku=L40S)]
    assert not [each for each in decide(small, model(priority="high"), running=tuple(l40s[:1])) if isinstance(each, Preempt)]


def test_those_who_go_already_make_room_only_for_what_the_model_needs() -> None:
    going = running("w0", {"west-0": 8}, cluster="west", sku="l40s-48gb", priority="low", ends=100.0, stopping=True)
    other = low("w1", {"west-1": 4}, cluster="west", sku="l40s-48gb")
    gang = model("a", 8, 16, priority="high", unit=8)
    decisions = decide([member("west", 0, 4, 4, sku=L40S)], gang, running=(going, other))
    assert [each.victim.job for each in decisions if isinstance(each, Preempt)] == ["w1"], "eight free on two machines are no pod of eight"


def test_quota_is_given_back_for_what_the_model_needs() -> None:
    """Sixteen L40S are free, and the cohort may hold no more than sixteen, of which another team holds eight."""
    owner = Team(name="t", quota={"l40s-48gb": 16}, cohort="c")
    borrower = Team(name="u", quota={}, cohort="c")
    held = running("w2", {"west-2": 8}, cluster="west", sku="l40s-48gb", team="u", started=-9 * HOUR, ends=9 * HOUR)
    decisions = decide([member("west", 8, 8, 0, sku=L40S)], model(created=-2 * HOUR), running=(held,), teams=(owner, borrower))
    assert [each.victim.job for each in decisions if isinstance(each, Preempt)] == ["w2"]


def test_quota_is_promised_for_what_the_model_needs() -> None:
    team = Team(name="t", quota={"l40s-48gb": 20}, borrowing={"l40s-48gb": 0})
    lows = [low(f"w{n}", {f"west-{n}": 8}, cluster="west", sku="l40s-48gb", team="u") for n in range(2)]
    gang = model(priority="high", unit=8)
    small = ask("small", 8, unit=4, created=1.0, seconds=50 * HOUR)
    decisions = decide([member("west", 0, 0, 4, 4, sku=L40S)], gang, small, running=tuple(lows), teams=(team,))
    assert sorted(each.victim.job for each in decisions if isinstance(each, Preempt)) == ["w0", "w1"]
    assert placed(decisions) == {}, "sixteen of the team's twenty are promised to the gang"


def test_asks_that_differ_in_where_they_fit_are_not_of_one_kind() -> None:
    worlds = (8, 4, 2, 1, 16)
    assert placed(decide([member("west", 1, sku=ONE_L40S)], ask("a", *worlds), model("b", created=1.0))) == {"a": "west"}
    assert placed(decide([member("west", 1, sku=ONE_L40S)], model("a"), ask("b", *worlds, created=1.0))) == {"b": "west"}


def test_room_is_kept_for_what_the_model_needs() -> None:
    """The first world is possible on H100s alone; of the L40S, where it does not fit, nothing is kept."""
    busy = running("r", {"east-0": 8}, ends=HOUR)
    gang, long = model("gang"), ask("long", 8, created=10.0, seconds=50 * HOUR)
    assert placed(decide([member("east", 0), member("west", 8, sku=L40S)], gang, long, running=(busy,))) == {"long": "west"}
    free = [member("east", 4, sku=SkuFacts("h100-80gb", 4)), member("west", 8, 0, sku=L40S)]
    busy = running("r", {"west-1": 8}, cluster="west", sku="l40s-48gb", ends=HOUR)
    assert placed(decide(free, gang, replace_skus(long), running=(busy,))) == {}, "sixteen L40S are kept for the gang"


def replace_skus(one: Ask) -> Ask:
    return ask(one.job, *one.worlds, created=one.created, seconds=one.seconds, skus=("l40s-48gb",))


def test_more_gpus_than_the_first_world_take_less_time() -> None:
    assert by_roofline(model(), H100.name, 16) == by_roofline(model(), H100.name, 8) / 2


@pytest.mark.parametrize("gpus", [0, -1, -(2**40)])
def test_a_least_below_one_is_no_limit(gpus: int) -> None:
    (place,) = decide([member("east", 8)], ask("a", 1, least=(("h100-80gb", gpus),)))
    assert isinstance(place, Place)
