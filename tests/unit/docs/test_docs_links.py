"""Links inside the repository lead somewhere: the file exists, and has the heading."""

from __future__ import annotations

import pytest
from tests.unit.docs.markdown import ROOT, Page, pages, read_page


def broken(page: Page) -> list[str]:
    found = []
    for line, target in page.links:
        path, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        file = (ROOT / page.name).parent / path if path else ROOT / page.name
        if not file.exists():
            found.append(f"{page.name}:{line}: there is no {target}")
        elif anchor and file.suffix == ".md" and anchor not in read_page(file.resolve()).anchors:
            found.append(f"{page.name}:{line}: {path or page.name} has no heading #{anchor}")
    return found


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page) -> None:
    assert not broken(page)


def reached_from(page: Page, clicks: int) -> set[str]:
    """Names of pages that a reader finds from `page` with so many clicks. A folder's list of files is no page."""
    reached, edge = {page.name}, {page.name}
    for _ in range(clicks):
        links = [(ROOT / name).parent / target.partition("#")[0] for name in edge for _, target in read_page(ROOT / name).links]
        found = {path.resolve() for path in links if path.suffix == ".md" and path.is_file()}
        edge = {str(path.relative_to(ROOT)) for path in found} - reached
        reached |= edge
    return reached


def test_every_page_is_three_clicks_from_the_index() -> None:
    index = read_page(ROOT / "docs" / "README.md")
    assert index.name in reached_from(read_page(ROOT / "README.md"), 1)
    orphans = {page.name for page in pages()} - reached_from(index, 3) - {"README.md"}
    assert not orphans, "name these pages in docs/README.md, or in the index of their folder"


def test_every_decision_stands_in_their_index() -> None:
    (index,) = (page for page in pages() if page.name == "docs/design/README.md")
    assert {target for _, target in index.links} == {path.name for path in (ROOT / "docs" / "design").glob("[0-9]*.md")}


@pytest.mark.parametrize(
    ("text", "what"),
    [("[x](docs/nowhere.md)", "there is no"), ("# A b\n[x](#a-c)", "no heading #a-c"), ("![p](docs/none.svg)", "there is no")],
)
def test_a_broken_link_is_found(text: str, what: str) -> None:
    (found,) = broken(Page("README.md", text))
    assert what in found


def test_headings_become_anchors_as_on_github() -> None:
    page = Page("p.md", "# The `tuneyard` command: a, b\n## 3. A member\n## Twice\n## Twice\n```\n# no heading\n```\n")
    assert page.anchors == {"the-tuneyard-command-a-b", "3-a-member", "twice", "twice-1"}
