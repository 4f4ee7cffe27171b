"""What waits to be recorded: each job once, changes before samples, and nothing forgotten."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operators.test_history_rows import attempt, jobspec, moment, status

from tuneyard.api import Phase
from tuneyard_operators.history.pending import Pending, Told
from tuneyard_operators.history.threads import Threads
from tuneyard_operators.history.writer import ready_since

KEYS = [("maps", f"job-{number}") for number in range(4)]


def told(version: int, runs: bool = False) -> Told:
    return Told((version,), runs)


def test_a_change_is_due_at_once_and_progress_after_a_pause() -> None:
    pending = Pending(paced_s=30.0)
    assert pending.hear(KEYS[0], told(1, runs=True), 0.0)
    assert pending.due(0.0, 10) == [KEYS[0]]
    assert list(pending.wrote({KEYS[0]: (1,)}, 0.0, {KEYS[0]: (1,)})) == [KEYS[0]]

    assert not pending.hear(KEYS[0], told(1, runs=True), 5.0)
    assert pending.due(29.0, 10) == []
    assert pending.due(30.0, 10) == [KEYS[0]]


def test_a_job_that_has_changed_while_it_was_written_is_due_again() -> None:
    pending = Pending(30.0)
    pending.hear(KEYS[0], told(1), 0.0)
    assert list(pending.wrote({KEYS[0]: (1,)}, 1.0, {KEYS[0]: (2,)})) == []
    assert (pending.due(1.0, 10), pending.lag_s(4.0)) == ([KEYS[0]], 4.0)


def test_a_database_that_comes_back_is_not_believed_to_have_what_was_written() -> None:
    pending = Pending(30.0)
    pending.hear(KEYS[0], told(1), 0.0)
    list(pending.wrote({KEYS[0]: (1,)}, 0.0, {KEYS[0]: (1,)}))
    pending.doubt(9.0)
    assert not pending.is_recorded(KEYS[0], (1,))
    assert pending.due(9.0, 10) == [KEYS[0]]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("hear"), st.sampled_from(KEYS), st.integers(0, 3), st.booleans()),
        st.tuples(st.just("gone"), st.sampled_from(KEYS)),
        st.tuples(st.just("write"), st.integers(1, 3)),
        st.tuples(st.just("doubt")),
    ),
    max_size=40,
)


@given(STEPS)
def test_what_is_not_on_record_is_due_and_what_is_gone_is_forgotten(steps: list[Any]) -> None:
    pending, now, stored = Pending(30.0), {}, {}
    for at, step in enumerate(steps):
        if step[0] == "hear":
            now[step[1]] = (step[2],)
            pending.hear(step[1], Told((step[2],), step[3]), at)
        elif step[0] == "gone":
            now.pop(step[1], None)
            pending.hear(step[1], None, at)
        elif step[0] == "doubt":
            pending.doubt(at)
            stored.clear()
        else:
            batch = {key: now[key] for key in pending.due(at, step[1])}
            stored.update(batch)
            list(pending.wrote(batch, at, now))
        due = set(pending.due(at, 100))
        assert {key for key, signature in now.items() if stored.get(key) != signature} <= due | {
            key for key in now if pending.is_recorded(key, now[key])
        }
        assert due <= set(now)


def test_a_deleted_job_could_have_gone_when_its_last_attempt_had_ended() -> None:
    ended = status(attempt(1, 0, 90), phase=Phase.SUCCEEDED, finished_at=moment(91))
    assert ready_since(jobspec(deletionTimestamp=moment(30)), ended) == datetime.fromisoformat(moment(90))
    assert ready_since(jobspec(), status()) is None
    item = jobspec()
    item["spec"]["ttlAfterFinished"] = "1h"
    assert ready_since(item, ended) == datetime.fromisoformat(moment(151))


def test_a_call_that_hangs_keeps_neither_the_loop_nor_later_hubs() -> None:
    free = threading.Event()

    async def scene() -> None:
        threads = Threads("test-history")
        hung = asyncio.create_task(threads.run(free.wait))
        await asyncio.sleep(0.05)
        hung.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await hung
        assert time.monotonic() - began < 5
        ended = threading.Event()
        threads.close(ended.set)
        free.set()
        await asyncio.to_thread(ended.wait, 10)
        assert ended.is_set()

    asyncio.run(scene())


def test_an_error_of_a_call_is_the_callers() -> None:
    async def scene() -> None:
        threads = Threads("test-history", 2)
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        assert await asyncio.gather(*(threads.run(lambda number=number: number) for number in range(9))) == list(range(9))
        threads.close()

    asyncio.run(scene())
