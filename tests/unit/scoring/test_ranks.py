"""What an engine learns of a rank that could not load: its reason, or that it was killed."""

from __future__ import annotations

from multiprocessing import shared_memory
from pathlib import Path

import pytest

from tuneyard.scoring.ranks import RankFailed, RankLost, raise_reported, report_failure, unnamed_shared_memory

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


def test_shared_memory_that_was_opened_works_on_without_its_name() -> None:
    with unnamed_shared_memory():
        block = shared_memory.SharedMemory(create=True, size=64)
        assert Path("/dev/shm", block.name).exists()

    assert not Path("/dev/shm", block.name).exists()
    block.buf[0] = 7
    assert block.buf[0] == 7
    block.close()
