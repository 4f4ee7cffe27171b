"""A page of docs/benchmarks is what its script writes: command, date and machine first, and its columns."""

from __future__ import annotations

import re

import pytest
from tests.unit.docs.markdown import ROOT, Page, pages

PAGES = [page for page in pages() if page.name.startswith("docs/benchmarks/") and not page.name.endswith("README.md")]


def name_of(page: Page) -> str:
    return page.name.removeprefix("docs/benchmarks/").removesuffix(".md")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_it_names_command_date_and_machine(page: Page) -> None:
    head = rf"# [^\n]+\n\n`python benchmarks/{name_of(page)}\.py[^`]*`,\s.{{0,120}}20\d\d-\d\d-\d\d"
    assert re.match(head, page.text, re.S), "write it anew by its script"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_its_columns_are_those_of_the_script(page: Page) -> None:
    """Most of them: some scripts make a few headings from what they measured. A script may have its page made by a module beside it."""
    script = (ROOT / "benchmarks" / f"{name_of(page)}.py").read_text()
    beside = (ROOT / "benchmarks" / f"{module}.py" for module in re.findall(r"^from (?:benchmarks\.)?(\w+) import", script, re.M))
    script += "".join(path.read_text() for path in beside if path.exists())
    tables = re.findall(r"^\|(.*)\|\n\|[-|: ]+\|$", page.text, re.M)
    cells = [cell.strip() for table in tables for cell in table.split("|") if cell.strip()]
    known = [cell for cell in cells if cell in script]
    assert 2 * len(known) >= len(cells), f"not in the script: {sorted(set(cells) - set(known))}"


def test_the_index_has_every_page() -> None:
    (index,) = (page for page in pages() if page.name == "docs/benchmarks/README.md")
    assert {target for _, target in index.links if target.endswith(".md")} >= {f"{name_of(page)}.md" for page in PAGES}
