"""For all tests: no example of hypothesis fails for being slow, no run is written into the history of whoever runs the tests, and no thread
of OpenMP spins while it waits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tuneyard", deadline=None)
settings.load_profile("tuneyard")

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
"""Read when torch is loaded. Beside other parts, threads that spin while they wait hold up the ones they wait for (docs/testing.md)."""


@pytest.fixture(scope="session", autouse=True)
def history_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database that goes with the tests; a test that wants another says so."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{path}")
        yield path
