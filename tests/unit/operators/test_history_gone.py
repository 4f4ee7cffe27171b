"""Jobs whose JobSpecs are gone, from their records."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from tests.unit.operators.test_history_rows import START, attempt, jobspec, status

from tuneyard.api import Phase
from tuneyard.tracking.history import History
from tuneyard.tracking.past import JobFilter
from tuneyard_operators.history.gone import gone_job
from tuneyard_operators.history.rows import rows_of

BEFORE, AFTER = START - timedelta(minutes=1), START + timedelta(minutes=1)
"""Moments at which a namespace was made: before the job, and after it."""


@pytest.fixture
def history(tmp_path: Path) -> History:
    made = History.open(f"sqlite:///{tmp_path / 'history.db'}")
    made.record([rows_of(jobspec(), status(attempt(1, 0, 60), phase=Phase.SUCCEEDED), "hub-1")], START)
    return made


@pytest.mark.parametrize("uid", ["u-1", ""])
def test_a_job_older_than_its_namespace_is_none_of_it(history: History, uid: str) -> None:
    found = gone_job(history, "leaf", uid, JobFilter(made_since=BEFORE))
    assert found is not None
    assert found["metadata"]["uid"] == "u-1"
    assert gone_job(history, "leaf", uid, JobFilter(made_since=AFTER)) is None


def test_a_uid_finds_no_job_of_another_name(history: History) -> None:
    assert gone_job(history, "oak", "u-1", JobFilter()) is None
