from __future__ import annotations

import pytest
from tests.testcluster import Unavailable
from tests.testcluster.binaries import binary


@pytest.fixture(scope="session")
def helm_here() -> None:
    """Skips, with the reason, where there is no helm and none can be built."""
    try:
        binary("helm")
    except Unavailable as reason:
        pytest.skip(f"NO HELM, charts were not tested: {reason}")
