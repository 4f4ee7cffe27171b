"""Commands under test know nothing of what was run on this machine before."""

import pytest


@pytest.fixture(autouse=True)
def without_history(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEYARD_HISTORY", "off")
