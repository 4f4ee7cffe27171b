"""Who may take a log over: nobody from the living, anybody from the dead. No test waits for time to pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.commits.interleavings import MemoryStore

from tuneyard.api import BadInput, StorageError
from tuneyard.storage import CommitLog, Fence, Fenced, Holder, Lease, acquire
from tuneyard.storage.lease import DEAD_AFTER_S, is_gone

BEAT_S = 5.0
NEVER_S = 3600.0


def holder(job: str = "first", *, attempt: int = 1, run: str | None = None, host: str | None = None) -> Holder:
    """This process; `host`: somewhere else."""
    mine = Holder.this_process(job=job, attempt=attempt, run=run or job)
    return mine if host is None else replace(mine, host=host, pid=4711, process="another boot/pid:[1]/1")


class World:
    """Time that passes only while a challenger sleeps, and a holder on another host that beats in it until it dies."""

    def __init__(self, *, dies_at_s: float = float("inf")) -> None:
        self.store = MemoryStore()
        self.now_s = 0.0
        self.beats = 0
        self.dies_at_s = dies_at_s
        self.told: list[str] = []
        self.fence: Fence = CommitLog(self.store, "log").open(holder(host="far").to_dict())

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        while (self.beats + 1) * BEAT_S <= min(self.now_s, self.dies_at_s):
            self.beats += 1
            self.store.put(f"log/beats/{self.fence.token}", str(self.beats).encode())

    def acquire(self, who: Holder, *, take_over: bool = False, sleep: Callable[[float], None] | None = None) -> Lease:
        return acquire(self.store, "log", who, take_over=take_over, on_wait=self.told.append, beat_s=NEVER_S, sleep=sleep or self.sleep)


def refuse_to_wait(seconds: float) -> None:
    raise AssertionError(f"waits for {seconds} s")


# The living and the dead


def test_a_living_holder_on_another_host_is_not_taken_over_and_is_named() -> None:
    world = World()

    with pytest.raises(BadInput, match="in use by first, attempt 1, process 4711 on far") as raised:
        world.acquire(holder("second"))

    assert "--out" in raised.value.next_step
    assert world.fence.check().token == 1
    assert world.now_s < 2 * BEAT_S
    assert "watching for 30 s" in world.told[0]


def test_a_holder_that_dies_is_taken_over_after_its_time() -> None:
    world = World(dies_at_s=0)

    lease = world.acquire(holder("second"))

    assert DEAD_AFTER_S <= world.now_s <= DEAD_AFTER_S + BEAT_S
    with pytest.raises(Fenced, match="second, attempt 1"):
        world.fence.commit(10, "x", "aa")
    lease.close()


def test_a_holder_that_dies_while_it_is_watched_was_alive_and_is_taken_over_by_the_next_try() -> None:
    world = World(dies_at_s=BEAT_S)
    with pytest.raises(BadInput, match="in use"):
        world.acquire(holder("second"))

    world.acquire(holder("second")).close()

    assert world.now_s >= BEAT_S + DEAD_AFTER_S


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_clocks_that_jump_do_not_matter(jump_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    living, dead = World(), World(dies_at_s=0)
    jumped = 0.0

    def jumping() -> float:
        nonlocal jumped
        jumped += jump_s
        return jumped

    for clock in ("time", "monotonic"):
        monkeypatch.setattr(f"tuneyard.storage.lease.time.{clock}", jumping)
    with pytest.raises(BadInput, match="in use"):
        living.acquire(holder("second"))
    dead.acquire(holder("second")).close()

    assert dead.now_s >= DEAD_AFTER_S


@pytest.mark.parametrize("frozen_at", range(1, 5))
def test_a_challenger_that_was_frozen_for_an_hour_has_missed_nothing(frozen_at: int) -> None:
    world = World()
    looks = 0

    def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        world.sleep(seconds + (3600.0 if looks == frozen_at else 0.0))

    with pytest.raises(BadInput, match="in use"):
        world.acquire(holder("second"), sleep=sleep)


def test_of_two_challengers_that_saw_the_holder_die_one_holds_and_the_other_is_refused() -> None:
    world = World(dies_at_s=0)
    won: list[Lease] = []

    def sleep(seconds: float) -> None:
        world.sleep(seconds)
        if world.now_s == DEAD_AFTER_S:  # both have watched for as long; the other one is faster
            won.append(world.acquire(holder("faster", run="faster"), take_over=True))

    with pytest.raises(BadInput, match="in use by faster"):
        world.acquire(holder("slower"), sleep=sleep)

    won[0].fence.check()
    won[0].close()


def test_a_log_that_was_given_back_is_free_at_once() -> None:
    world = World()
    world.fence.close()

    world.acquire(holder("second"), sleep=refuse_to_wait).close()


# Those who need not wait


def test_a_later_attempt_of_the_same_run_does_not_wait() -> None:
    world = World()

    lease = world.acquire(holder(attempt=2), sleep=refuse_to_wait)

    assert lease.fence.token == 2
    lease.close()


@pytest.mark.parametrize("who", [holder(attempt=1), holder(attempt=2, run="another")])
def test_the_same_attempt_and_other_runs_wait(who: Holder) -> None:
    with pytest.raises(BadInput, match="in use"):
        World().acquire(who)


def test_an_earlier_attempt_does_not_take_over_from_a_later_one() -> None:
    world = World()
    world.fence = CommitLog(world.store, "log").open(holder(attempt=3, host="far").to_dict())

    with pytest.raises(BadInput, match="attempt 3"):
        world.acquire(holder(attempt=2))


def test_who_is_told_to_take_over_does_not_wait() -> None:
    world = World()

    lease = world.acquire(holder("second"), take_over=True, sleep=refuse_to_wait)

    with pytest.raises(Fenced):
        world.fence.check()
    lease.close()


# Processes of this machine


def test_this_process_is_not_gone_and_is_refused_at_once() -> None:
    store = MemoryStore()
    lease = acquire(store, "log", holder(), beat_s=NEVER_S)

    assert is_gone(holder().to_dict()) is False
    with pytest.raises(BadInput, match=f"process {os.getpid()}"):
        acquire(store, "log", holder("second"), sleep=refuse_to_wait)
    lease.close()


def test_a_process_that_ended_is_gone() -> None:
    program = (
        "import json; from tuneyard.storage import Holder; print(json.dumps(Holder.this_process(job='a', attempt=1, run='a').to_dict()))"
    )
    ended = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    store = MemoryStore()
    CommitLog(store, "log").open(ended)

    assert is_gone(ended) is True
    acquire(store, "log", holder("second"), sleep=refuse_to_wait, beat_s=NEVER_S).close()


def test_a_reused_pid_is_told_apart() -> None:
    mine = holder()
    place = mine.process.rpartition("/")[0]

    assert is_gone(replace(mine, process=f"{place}/1").to_dict()) is True


@pytest.mark.parametrize(
    "elsewhere",
    [{"host": "far"}, {"process": "another-boot/pid:[4026531836]/77"}, {"process": ""}],
    ids=["another host", "a clone of this machine, or before its restart", "no /proc there"],
)
def test_what_cannot_be_seen_from_here_is_not_taken_for_gone(elsewhere: dict[str, str]) -> None:
    assert is_gone(replace(holder(), **elsewhere).to_dict()) is None


def test_a_container_in_the_network_of_its_host_is_not_taken_for_gone() -> None:
    boot, _, started = holder().process.split("/")

    assert is_gone(replace(holder(), pid=1 << 22, process=f"{boot}/pid:[1]/{started}").to_dict()) is None


# Beating


class Watched(MemoryStore):
    """Counts beats, and is away on demand."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False
        self.beats = threading.Semaphore(0)
        self.failures = threading.Semaphore(0)

    def put(self, path: str, data: bytes) -> None:
        if self.away:
            self.failures.release()
            raise StorageError("the store is away")
        super().put(path, data)
        self.beats.release()

    def create(self, path: str, data: bytes) -> None:
        if self.away:
            raise StorageError("the store is away")
        super().create(path, data)


def test_a_lease_beats_and_the_number_grows() -> None:
    store = Watched()
    lease = acquire(store, "log", holder(), beat_s=0.001)
    for _ in range(3):
        assert store.beats.acquire(timeout=60)
    lease.close()

    assert int(store.get("log/beats/1")) >= 3
    assert CommitLog(store, "log").read().closed


def test_a_zombie_that_wakes_is_refused_and_told() -> None:
    store, lost = Watched(), threading.Event()
    fell_asleep, woke = threading.Event(), threading.Event()
    put = store.put

    def sleepy(path: str, data: bytes) -> None:
        fell_asleep.set()
        woke.wait(60)  # its whole machine stands still, in the middle of a beat
        put(path, data)

    store.put = sleepy  # type: ignore[method-assign]
    zombie = acquire(store, "log", holder(host="far"), beat_s=0.001, on_lost=lost.set)
    slept_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal slept_s
        slept_s += seconds

    assert fell_asleep.wait(60)
    store.put = put  # type: ignore[method-assign]
    lease = acquire(store, "log", holder("second"), beat_s=NEVER_S, sleep=sleep)
    lease.fence.commit(10, "step-10.2", "bb")
    woke.set()

    assert lost.wait(60)
    with pytest.raises(Fenced, match="second, attempt 1"):
        zombie.fence.commit(20, "step-20.1", "aa")
    zombie.close()
    assert slept_s >= DEAD_AFTER_S
    assert [commit.step for commit in lease.fence.check().commits] == [10]
    lease.close()


def test_beats_outlive_a_store_that_was_away() -> None:
    store, lost = Watched(), threading.Event()
    lease = acquire(store, "log", holder(), beat_s=0.001, on_lost=lost.set)
    assert store.beats.acquire(timeout=60)
    store.away = True
    for _ in range(3):
        assert store.failures.acquire(timeout=60)
    before = int(store.get("log/beats/1"))
    store.away = False
    while int(store.get("log/beats/1")) <= before:
        assert store.beats.acquire(timeout=60)

    assert not lost.is_set()
    lease.fence.commit(10, "x", "aa")
    lease.close()


def test_closing_twice_is_closing_once() -> None:
    store = Watched()
    lease = acquire(store, "log", holder(), beat_s=NEVER_S)

    lease.close()
    lease.close()

    assert [file.path for file in store.list("log")] == ["log/00000001.json", "log/00000002.json", "log/beats/1"]


def test_a_lease_that_cannot_be_given_back_is_taken_for_dead_later() -> None:
    store = Watched()
    lease = acquire(store, "log", holder(host="far"), beat_s=NEVER_S)
    assert store.beats.acquire(timeout=60)
    store.away = True
    with pytest.raises(StorageError, match="away"):
        lease.close()
    store.away = False
    slept: list[float] = []

    acquire(store, "log", holder("second"), beat_s=NEVER_S, sleep=slept.append).close()

    assert sum(slept) >= DEAD_AFTER_S
