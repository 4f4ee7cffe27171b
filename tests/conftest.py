"""For all tests: no example of hypothesis fails for being slow, and no run is written into the history of whoever runs the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("tuneyard", deadline=None)
settings.load_profile("tuneyard")


@pytest.fixture(scope="session", autouse=True)
def history_of_the_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A database that goes with the tests; a test that wants another says so."""
    path = tmp_path_factory.mktemp("history") / "history.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNEYARD_HISTORY_URL", f"sqlite:///{path}")
        yield path
