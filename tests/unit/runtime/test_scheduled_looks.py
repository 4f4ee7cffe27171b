"""Looks for the data of runs: none is lost between two steps of the runner."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tuneyard.api.schedule_status import WaitingRun
from tuneyard.runtime.scheduled import looks
from tuneyard.runtime.scheduled.looks import Looks
from tuneyard.schedules import Look

NOW = datetime(2026, 11, 23, 2, tzinfo=UTC)
RUN = WaitingRun(name="night-1", due="2026-11-23T02:00:00Z", kind="scheduled", since="2026-11-23T02:00:00Z", path="data/_SUCCESS")


def test_a_look_counts_as_busy_until_it_was_read(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "_SUCCESS").touch()
    found = Looks(tmp_path)

    found.want([RUN], NOW)
    for thread in found._threads.values():
        thread.join()

    assert found.busy
    assert found.found() == {"night-1": Look(True)}
    assert not found.busy


def test_a_storage_that_hangs_is_a_look_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(looks, "is_there", lambda _uri: goes_on.wait(60))
    found = Looks(tmp_path)

    found.want([RUN], NOW)
    assert found.found() == {}
    monkeypatch.setattr(looks, "_LONGEST_S", 0.0)
    time.sleep(0.01)
    assert found.found() == {"night-1": Look(False, "its storage does not answer")}
    goes_on.set()
