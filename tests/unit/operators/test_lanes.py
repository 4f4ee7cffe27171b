"""Actions on a member: a bound, one at a time for an attempt, and nobody waits for another member."""

from __future__ import annotations

import asyncio

from tuneyard_operators.hub.lanes import Lane


def test_a_lane_that_hangs_holds_up_no_other() -> None:
    async def both() -> list[str]:
        hanging, quick, done = Lane(2), Lane(2), []

        async def hang() -> None:
            await asyncio.Event().wait()

        async def work(number: int) -> None:
            done.append(f"a-{number}")

        for number in range(5):
            hanging.hand(f"h-{number}", hang, then=lambda: None, owner="a")
            quick.hand(f"a-{number}", lambda number=number: work(number), then=lambda: None, owner="a")
        while quick:
            await asyncio.sleep(0)
        await hanging.close()
        return done

    assert asyncio.run(both()) == [f"a-{number}" for number in range(5)]


def test_no_more_run_at_once_than_are_allowed() -> None:
    async def most() -> int:
        lane, running, seen = Lane(3), 0, []

        async def work() -> None:
            nonlocal running
            running += 1
            seen.append(running)
            await asyncio.sleep(0)
            running -= 1

        for number in range(20):
            lane.hand(f"a-{number}", work, then=lambda: None, owner="a")
        while lane:
            await asyncio.sleep(0)
        return max(seen)

    assert asyncio.run(most()) == 3


def test_what_is_wanted_of_an_attempt_meanwhile_is_looked_at_again_afterwards() -> None:
    async def log() -> list[str]:
        lane, done, go = Lane(2), [], asyncio.Event()

        async def work(name: str) -> None:
            await go.wait()
            done.append(name)

        lane.hand("a-1", lambda: work("start"), then=lambda: done.append("look again"), owner="a")
        lane.hand("a-1", lambda: work("clean"), then=lambda: done.append("never"), owner="a")
        assert "a-1" in lane
        go.set()
        while lane:
            await asyncio.sleep(0)
        return done

    assert asyncio.run(log()) == ["start", "look again"]


def test_a_start_of_one_owner_waits_for_one_of_another_and_not_for_all() -> None:
    async def order() -> list[str]:
        lane, done = Lane(1), []

        async def work(name: str) -> None:
            await asyncio.sleep(0)
            done.append(name)

        for number in range(100):
            lane.hand(f"many-{number}", lambda number=number: work(f"many-{number}"), then=lambda: None, owner="many")
        lane.hand("one", lambda: work("one"), then=lambda: None, owner="other")
        while lane:
            await asyncio.sleep(0)
        return done

    assert asyncio.run(order()).index("one") <= 1
