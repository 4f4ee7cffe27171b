"""What an engine learns of a rank that could not load: its reason, or that it was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from pathlib import Path
from types import SimpleNamespace

import pytest

from tuneyard.scoring.rank_deaths import RankLost, announce, any_ended, never_waits_for_the_dead, wait_for_ends
from tuneyard.scoring.ranks import RankFailed, raise_reported, report_failure, unnamed_shared_memory

SPAWN = multiprocessing.get_context("spawn")

OF_VLLM = "WorkerProc initialization failed due to an exception in a background process."


def test_a_rank_s_reason_is_raised_in_the_engine_s_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_ENGINE_FOLDER", str(tmp_path))
    with pytest.raises(MemoryError), report_failure():
        raise MemoryError("2 GiB for the cache")

    with pytest.raises(RankFailed, match="2 GiB for the cache") as found, raise_reported(tmp_path):
        raise RuntimeError(OF_VLLM)
    assert found.value.raised == "MemoryError"


def test_a_rank_that_ended_without_a_reason_was_killed(tmp_path: Path) -> None:
    with pytest.raises(RankLost), raise_reported(tmp_path):
        raise RuntimeError(OF_VLLM)


def test_other_errors_of_the_load_stay_as_they_are(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="head size"), raise_reported(tmp_path):
        raise ValueError("head size 24")


def rank_until_it_ends(folder: str) -> None:
    announce(Path(folder))
    time.sleep(600)


@contextmanager
def ranks(folder: Path, count: int = 1) -> Iterator[list[multiprocessing.process.BaseProcess]]:
    """Processes that have announced themselves, and wait."""
    started = [SPAWN.Process(target=rank_until_it_ends, args=(str(folder),)) for _ in range(count)]
    for process in started:
        process.start()
    try:
        while len(list(folder.glob("rank-*"))) < count:
            time.sleep(0.02)
        yield started  # type: ignore[misc]
    finally:
        for process in started:
            process.kill()
            process.join()


@pytest.mark.parametrize("of_vllm", ["Executor failed.", "cancelled", "Worker failed with error 'Connection closed by peer', please check"])
def test_a_rank_that_is_killed_after_it_was_ready_is_lost_and_no_failure_of_the_load(tmp_path: Path, of_vllm: str) -> None:
    with ranks(tmp_path) as (rank,):
        threading.Timer(0.2, rank.kill).start()
        with pytest.raises(RankLost), raise_reported(tmp_path):
            raise RuntimeError(of_vllm)


def test_an_error_of_a_living_rank_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuneyard.scoring.ranks.ends_soon", any_ended)
    with ranks(tmp_path), pytest.raises(RuntimeError, match="out of memory"), raise_reported(tmp_path):
        raise RuntimeError("Worker failed with error 'out of memory'")


def test_a_rank_that_says_why_it_ends_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_ENGINE_FOLDER", str(tmp_path))
    announce(tmp_path)
    with pytest.raises(ValueError), report_failure():
        raise ValueError("a damaged file")

    assert list(tmp_path.glob("rank-*")) == []


def test_an_error_that_comes_before_the_monitor_has_seen_the_killed_rank_is_its_loss(tmp_path: Path) -> None:
    """The other rank's connection is closed before the killed one has ended, and its error arrives first."""
    with ranks(tmp_path, 2) as started:
        executor = SimpleNamespace(is_failed=False, workers=[SimpleNamespace(proc=process) for process in started])
        threading.Timer(0.2, started[1].kill).start()
        threading.Timer(0.6, started[0].kill).start()  # as vLLM's monitor does

        assert wait_for_ends(executor)
        assert not any(process.is_alive() for process in started)


def test_an_error_while_all_ranks_live_is_no_loss(tmp_path: Path) -> None:
    with ranks(tmp_path) as (rank,):
        assert not wait_for_ends(SimpleNamespace(is_failed=False, workers=[SimpleNamespace(proc=rank)]), within_s=0.2)


def test_a_load_that_waits_for_a_killed_rank_ends(tmp_path: Path) -> None:
    ended = threading.Event()
    with ranks(tmp_path) as (rank,), never_waits_for_the_dead(tmp_path, lambda _: ended.set(), within_s=0.1):
        os.kill(rank.pid, signal.SIGKILL)  # type: ignore[arg-type]

        assert ended.wait(60)


def test_a_load_that_returns_is_left_alone(tmp_path: Path) -> None:
    ended: list[RankLost] = []
    end: Callable[[RankLost], object] = ended.append
    with ranks(tmp_path), never_waits_for_the_dead(tmp_path, end, within_s=0):
        time.sleep(1.5)

    assert ended == []


def test_shared_memory_that_was_opened_works_on_without_its_name() -> None:
    with unnamed_shared_memory():
        block = shared_memory.SharedMemory(create=True, size=64)
        assert Path("/dev/shm", block.name).exists()

    assert not Path("/dev/shm", block.name).exists()
    block.buf[0] = 7
    assert block.buf[0] == 7
    block.close()
