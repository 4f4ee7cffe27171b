from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers.chromium import Tab, browser


@pytest.fixture(scope="session")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """One tab for all pages, one after the other."""
    with browser(tmp_path_factory.mktemp("browser")) as made:
        yield made
