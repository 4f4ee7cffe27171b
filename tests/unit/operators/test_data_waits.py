"""Jobs whose ranks wait for data, as Prometheus hears of them."""

from __future__ import annotations

from typing import Any

from tests.unit.runtime.test_attempt_state import STEP, state_after

from tuneyard.api import JobStatus
from tuneyard.api.status import Phase
from tuneyard.tracking import TimeSplit
from tuneyard_operators.hub.data_waits import data_waits


def job(stalled_s: float | None, phase: Phase = Phase.RUNNING) -> dict[str, Any]:
    """As stored, where its last attempt has told of a step that waited for so long of one second."""
    status = JobStatus(phase=phase)
    if stalled_s is not None:
        split = TimeSplit(data_s=stalled_s, forward_s=1 - stalled_s)
        status.progress = state_after(type(STEP)(**{**vars(STEP), "split": split})).progress
    return {"status": status.model_dump(mode="json", by_alias=True, exclude_none=True)}


def test_only_running_jobs_that_wait_are_told() -> None:
    items = {
        ("maps", "starved"): job(0.4),
        ("maps", "fed"): job(0.002),
        ("maps", "no-step-yet"): job(None),
        ("ads", "over"): job(0.4, Phase.SUCCEEDED),
        ("ads", "damaged"): {"status": {"phase": "Running", "progress": "much"}},
    }
    assert dict(data_waits(items)) == {("maps", "starved"): 0.4}
