"""One log, many attempts: who may commit, what readers see, and what an answer that never came is worth."""

from __future__ import annotations

import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commits.interleavings import (
    Choose,
    Deed,
    Fault,
    History,
    Life,
    MemoryStore,
    Plan,
    every_order,
    listed_order,
    random_order,
    random_plan,
    run,
)
from tests.commits.promises import violations

from tuneyard.api import StorageError
from tuneyard.storage import AlreadyExists, Commit, CommitLog, Fenced

INTERLEAVINGS = 300
"""The long tests try a thousand on disk and on S3."""
WRITE_OF_THE_COMMIT = 5
"""Number of that operation in an attempt that opens an empty log: list, get, create; get (check), get, create."""
ONE_COMMIT = (Deed("commit"),)


def play(seed: int) -> History:
    return run(MemoryStore(), random_plan(seed), random_order(seed))


# Interleavings


def test_no_promise_is_broken_in_random_interleavings() -> None:
    histories = {seed: play(seed) for seed in range(INTERLEAVINGS)}

    assert {seed: found for seed, history in histories.items() if (found := violations(history))} == {}
    # The cases that matter did occur.
    told = [(told.call, told.outcome) for history in histories.values() for told in history.told]
    assert told.count(("commit", "done")) > INTERLEAVINGS
    assert told.count(("commit", "fenced")) > INTERLEAVINGS / 10
    faults = sum((history.faults for history in histories.values()), start=History().faults)
    assert min(faults[fault] for fault in Fault) > 10


LIVES = st.builds(
    Life,
    st.lists(st.builds(Deed, st.sampled_from(["commit", "commit", "restart", "check"]), st.integers(1, 4)), max_size=4).map(tuple),
    st.dictionaries(st.integers(0, 12), st.sampled_from(Fault), max_size=2),
    st.integers(0, 1),
    st.booleans(),
)
PLANS = st.builds(Plan, st.lists(st.lists(LIVES, min_size=1, max_size=2).map(tuple), min_size=2, max_size=3).map(tuple), st.integers(0, 3))


@given(PLANS, st.lists(st.integers(0, 11), max_size=80))
@settings(max_examples=200, deadline=None)
def test_no_promise_is_broken_in_an_order_that_hypothesis_seeks(plan: Plan, choices: list[int]) -> None:
    assert violations(run(MemoryStore(), plan, listed_order(choices))) == []


def test_no_promise_is_broken_in_any_order_of_a_commit_and_a_take_over() -> None:
    plan = Plan(((Life(ONE_COMMIT),), (Life(()),)))

    histories = list(every_order(lambda choose: run(MemoryStore(), plan, choose)))

    assert len({tuple(history.trace) for history in histories}) == len(histories) > 500
    assert [found for history in histories if (found := violations(history))] == []


@pytest.mark.parametrize("fault", Fault)
def test_no_promise_is_broken_in_any_order_of_a_commit_that_fails_and_a_take_over(fault: Fault) -> None:
    plan = Plan(((Life(ONE_COMMIT, {WRITE_OF_THE_COMMIT: fault}),), (Life(()),)))

    histories = list(every_order(lambda choose: run(MemoryStore(), plan, once_open(choose))))

    assert any(history.faults[fault] for history in histories)
    assert [found for history in histories if (found := violations(history))] == []


def once_open(choose: Choose) -> Choose:
    """The first attempt opens the log undisturbed: orders of that are in the test above."""
    turns = itertools.count()
    return lambda ready: 0 if next(turns) < WRITE_OF_THE_COMMIT - 1 else choose(ready)


def test_an_interleaving_can_be_played_again() -> None:
    for seed in range(50):
        first, again = play(seed), play(seed)

        assert first.trace == again.trace
        assert first.told == again.told
    assert play(0).trace != play(1).trace


# The judge itself: logs that are broken on purpose


def test_a_store_whose_create_overwrites_is_found_out() -> None:
    class Overwriting(MemoryStore):
        def create(self, path: str, data: bytes) -> None:
            self.put(path, data)

    found = [fault for seed in range(20) for fault in violations(run(Overwriting(), random_plan(seed), random_order(seed)))]

    assert any("had two winners" in fault for fault in found)


def test_a_lost_race_that_is_taken_for_a_lost_answer_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.storage.commits.uuid.uuid4", lambda: UUID(int=0))

    found = [fault for seed in range(20) for fault in violations(play(seed))]

    assert any("the commit is not in the log" in fault for fault in found)


def test_a_zombie_that_is_let_through_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CommitLog, "held_by", lambda log, _token: log.read())

    found = [fault for seed in range(20) for fault in violations(play(seed))]

    assert any("and the log was held by" in fault for fault in found)


# One by one


def test_a_log_begins_empty() -> None:
    state = CommitLog(MemoryStore(), "log").read()

    assert (state.token, state.closed, state.last_step, state.commits) == (0, True, 0, ())


def test_what_is_committed_is_read_by_the_next_attempt() -> None:
    store = MemoryStore()
    first = CommitLog(store, "log").open({"job": "a"})
    first.commit(10, "step-10.1", "aa")
    first.commit(20, "step-20.1", "bb")

    second = CommitLog(store, "log").open({"job": "b"})

    assert (first.token, second.token) == (1, 4)
    assert second.check().commits == (Commit(10, 1, "step-10.1", "aa"), Commit(20, 1, "step-20.1", "bb"))
    assert second.check().holder == {"job": "b"}


def test_a_zombie_is_refused_and_told_by_whom() -> None:
    store = MemoryStore()
    zombie = CommitLog(store, "log").open({"job": "a", "attempt": 1, "host": "one"})
    CommitLog(store, "log").open({"job": "a", "attempt": 2, "host": "two"})

    for act in (lambda: zombie.commit(10, "x", "aa"), lambda: zombie.restart(0), zombie.check):
        with pytest.raises(Fenced, match="a, attempt 2, on two has taken over"):
            act()
    zombie.close()

    assert not CommitLog(store, "log").read().closed


def test_nothing_is_committed_after_closing() -> None:
    fence = CommitLog(MemoryStore(), "log").open({})
    fence.close()
    fence.close()

    with pytest.raises(Fenced, match="was released"):
        fence.commit(10, "x", "aa")


def test_steps_grow_and_a_restart_goes_back() -> None:
    fence = CommitLog(MemoryStore(), "log").open({})
    fence.commit(10, "x", "aa")
    fence.commit(20, "y", "bb")

    with pytest.raises(ValueError, match="step 20 is not after 20"):
        fence.commit(20, "z", "cc")
    assert [commit.step for commit in fence.restart(10).commits] == [10]
    assert [commit.step for commit in fence.commit(15, "z", "cc").commits] == [10, 15]


class Forgetful(MemoryStore):
    """Writes, and then says that it does not know whether it did."""

    forgets = False

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        if self.forgets:
            raise StorageError("no answer")


def test_a_commit_in_doubt_can_be_tried_again() -> None:
    store = Forgetful()
    fence = CommitLog(store, "log").open({})
    store.forgets = True
    with pytest.raises(StorageError):
        fence.commit(10, "x", "aa")
    store.forgets = False

    assert fence.commit(10, "x", "aa").last_step == 10
    assert len(store.files) == 2
    with pytest.raises(ValueError, match="step 10 is not after 10"):
        fence.commit(10, "x", "other")


def test_a_log_can_be_used_by_several_threads() -> None:
    store = MemoryStore()
    fence = CommitLog(store, "log").open({})

    def restart(step: int) -> int:
        fence.check()
        return fence.restart(step).entries

    with ThreadPoolExecutor(8) as pool:
        numbers = sorted(pool.map(restart, range(200)))

    assert numbers == list(range(2, 202))
    assert sorted(store.files) == [f"log/{number:08d}.json" for number in range(1, 202)]
    assert fence.check() == CommitLog(store, "log").read()


def test_of_those_who_take_over_from_the_same_attempt_one_does() -> None:
    store = MemoryStore()
    CommitLog(store, "log").open({"job": "dead"})
    together = threading.Barrier(8)

    def take_over(number: int) -> bool:
        together.wait()
        return CommitLog(store, "log").open_after(1, {"job": number}) is not None

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(take_over, range(8))) == [False] * 7 + [True]


def test_a_commit_costs_one_read_and_one_write() -> None:
    class Counting(MemoryStore):
        calls = 0

        def get(self, path: str) -> bytes:
            self.calls += 1
            return super().get(path)

        def create(self, path: str, data: bytes) -> None:
            self.calls += 1
            super().create(path, data)

    store = Counting()
    fence = CommitLog(store, "log").open({})
    store.calls = 0

    fence.commit(10, "x", "aa")

    assert store.calls == 2


def test_a_missing_entry_is_named_and_never_filled() -> None:
    store = MemoryStore()
    fence = CommitLog(store, "log").open({})
    fence.commit(10, "x", "aa")
    fence.commit(20, "y", "bb")
    store.delete("log/00000002.json")

    with pytest.raises(StorageError, match=r"log/00000002\.json is missing, but later entries"):
        CommitLog(store, "log").open({})
    assert "log/00000002.json" not in store.files


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"format": 1}', b"\xff"])
def test_a_damaged_entry_is_named(content: bytes) -> None:
    store = MemoryStore()
    store.put("log/00000001.json", content)

    with pytest.raises(StorageError, match=r"log/00000001\.json is damaged"):
        CommitLog(store, "log").read()


def test_an_entry_of_a_newer_version_is_not_guessed_at() -> None:
    store = MemoryStore()
    store.put("log/00000001.json", json.dumps({"format": 2, "kind": "vote", "nonce": ""}).encode())

    with pytest.raises(StorageError, match="written by a newer Tuneyard"):
        CommitLog(store, "log").open({})


def test_what_lies_beside_the_entries_is_no_entry() -> None:
    store = MemoryStore()
    for path in ("log/beats/1", "log/note.json", "log/00000009.json.bak"):
        store.put(path, b"7")

    assert CommitLog(store, "log").open({}).token == 1


def test_memory_stores_create_as_others_do() -> None:
    store = MemoryStore()
    store.create("a", b"1")

    with pytest.raises(AlreadyExists):
        store.create("a", b"2")
