"""The work queue: each key once, never by two at a time, later where asked so, on every event loop that the hub may run on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from tuneyard_operators.hub.workqueue import WorkQueue

LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_the_earliest_of_several_times_counts(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def order() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        for key, seconds in [("late", 3600), ("now", 0), ("now", 0.1), ("late", 0.05), ("late", 7200), ("now", -1)]:
            queue.add_after(key, seconds)
        return [await queue.get(), await queue.get()]

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(order()) == ["now", "late"]


def test_a_key_that_is_added_while_it_is_worked_on_comes_again_afterwards() -> None:
    async def taken() -> list[str]:
        queue: WorkQueue[str] = WorkQueue()
        queue.add("a")
        queue.add("a")
        found = [await queue.get()]
        queue.add("a")
        queue.add("b")
        found.append(await queue.get())
        queue.done("a")
        return [*found, await queue.get()]

    assert asyncio.run(taken()) == ["a", "b", "a"]


@pytest.mark.parametrize("new_loop", LOOPS)
def test_a_key_that_was_dropped_does_not_come_back_by_itself(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def order() -> tuple[str, int, int]:
        queue: WorkQueue[str] = WorkQueue()
        queue.retry("gone", base_s=0.0)
        queue.drop("gone")
        queue.add_after("other", 0.05)
        return await queue.get(), len(queue), queue.failures("gone")

    with asyncio.Runner(loop_factory=new_loop) as runner:
        assert runner.run(order()) == ("other", 1, 0)


def test_a_key_that_fails_for_days_comes_back_after_the_longest_pause() -> None:
    async def retried() -> None:
        queue: WorkQueue[str] = WorkQueue()
        for _ in range(1_100):
            queue.retry("a", longest_s=0.01)
        assert await asyncio.wait_for(queue.get(), 5) == "a"

    asyncio.run(retried())


def test_owners_take_turns() -> None:
    async def order() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(owner_of=lambda key: key[0])
        for key in ("a1", "a2", "a3", "b1", "c1", "b2"):
            queue.add(key)
        found = [await queue.get() for _ in range(6)]
        assert len(queue) == 6  # all at work
        return found

    assert asyncio.run(order()) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_one_owner_leaves_workers_for_the_others() -> None:
    async def order() -> list[str]:
        queue: WorkQueue[str] = WorkQueue(owner_of=lambda key: key[0], most_of_one=2)
        for key in ("a1", "a2", "a3", "b1"):
            queue.add(key)
        found = [await queue.get() for _ in range(3)]
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.done("a1")
        return [*found, await waiting]

    assert asyncio.run(order()) == ["a1", "b1", "a2", "a3"]
