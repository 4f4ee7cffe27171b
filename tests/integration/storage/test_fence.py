"""The fence on real storage: the same interleavings as in memory, and races without any order, on a disk, on S3 and on HDFS."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from tests.commits.interleavings import random_order, random_plan, run
from tests.commits.promises import violations

from tuneyard.api import StorageError
from tuneyard.storage import AlreadyExists, CommitLog, Fence, Fenced, Store, open_store

ROUNDS, CREATORS = 6, 8


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:12]


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Store:
    return open_store(str(tmp_path / "store") if request.param == "local" else f"s3://{request.getfixturevalue('s3').bucket}/{name}")


@pytest.fixture(params=["local", "s3", "webhdfs"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    if request.param == "local":
        return open_store(str(tmp_path / "store"))
    if request.param == "s3":
        return open_store(f"s3://{request.getfixturevalue('s3').bucket}/{name}")
    monkeypatch.setenv("HADOOP_USER_NAME", "tester")
    return open_store(f"webhdfs://127.0.0.1:{request.getfixturevalue('webhdfs_port')}/{name}")


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 1000), marks=pytest.mark.long)], ids=["some", "many"])
def test_no_promise_is_broken_in_random_interleavings(store: Store, seeds: range) -> None:
    for seed in seeds:
        history = run(store, random_plan(seed), random_order(seed), prefix=f"{seed}/log")
        assert violations(history) == [], f"seed {seed}"


def test_an_interleaving_is_the_same_on_every_store(store: Store, tmp_path: Path) -> None:
    other = open_store(str(tmp_path / "other"))

    for seed in range(20):
        here, there = (run(where, random_plan(seed), random_order(seed), prefix=f"{seed}/log") for where in (store, other))

        assert here.trace == there.trace
        assert here.told == there.told


def test_one_of_many_creators_gets_a_number(any_store: Store) -> None:
    together = Barrier(CREATORS)

    def create(number: int, creator: int) -> bytes | None:
        mine = f"{creator}".encode()
        together.wait()
        try:
            any_store.create(f"log/{number:08d}.json", mine)
        except AlreadyExists:
            return None
        return mine

    with ThreadPoolExecutor(CREATORS) as pool:
        for number in range(ROUNDS):
            outcomes = list(pool.map(create, [number] * CREATORS, range(CREATORS)))
            assert [mine for mine in outcomes if mine is not None] == [any_store.get(f"log/{number:08d}.json")]


def test_attempts_that_open_at_once_get_tokens_of_their_own_and_the_last_one_commits(any_store: Store) -> None:
    def attempt(number: int) -> tuple[Fence, bool]:
        fence = CommitLog(any_store, "log").open({"number": number})
        try:
            fence.commit(fence.check().last_step + 1, f"step.{fence.token}", f"{number}")
        except Fenced:
            return fence, False
        return fence, True

    with ThreadPoolExecutor(CREATORS) as pool:
        outcomes = list(pool.map(attempt, range(CREATORS)))

    state = CommitLog(any_store, "log").read()
    tokens = [fence.token for fence, _ in outcomes]
    assert len(set(tokens)) == CREATORS
    assert state.token == max(tokens)
    assert {commit.token for commit in state.commits} == {fence.token for fence, done in outcomes if done}
    assert next(done for fence, done in outcomes if fence.token == state.token)
    for fence, _ in outcomes:
        if fence.token != state.token:
            with pytest.raises(Fenced):
                fence.commit(1000, "late", "late")


def test_entries_cannot_be_read_where_the_log_has_a_hole(any_store: Store) -> None:
    fence = CommitLog(any_store, "log").open({})
    fence.commit(1, "a", "a")
    fence.commit(2, "b", "b")
    any_store.delete("log/00000002.json")

    with pytest.raises(StorageError, match="is missing, but later entries of the log exist"):
        CommitLog(any_store, "log").read()
