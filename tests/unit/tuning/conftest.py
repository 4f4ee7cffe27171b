"""History that the tests of the room share, and what learned from it."""

from __future__ import annotations

import pandas as pd
import pytest
from tests.unit.tuning.runs import grid

from tuneyard.tuning import Predictor


@pytest.fixture(scope="session")
def history() -> pd.DataFrame:
    """All layouts of two models on eight GPUs."""
    return pd.concat([grid("1b"), grid("8b", seed=1)], ignore_index=True)


@pytest.fixture(scope="session")
def predictor(history: pd.DataFrame) -> Predictor:
    return Predictor.fit(history)
