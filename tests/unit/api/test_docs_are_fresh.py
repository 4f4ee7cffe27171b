"""The committed reference pages are what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.api.docs import pages

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
PAGES = pages()


def test_no_page_of_a_removed_kind_is_left() -> None:
    by_others = {"charts.md", "forms.md", "models.md", "templates.md"}
    assert {path.name for path in REFERENCE.iterdir()} == set(PAGES) | by_others


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_fresh(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name], "run `make docs` and commit the result"
