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


def test_every_page_of_the_manual_can_be_reached_from_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        for _, target in read_page(path).links:
            file = (path.parent / target.partition("#")[0]).resolve()
            if "://" not in target and file.exists():
                waiting += sorted(file.glob("*.md")) if file.is_dir() else [file]
    assert {page.name for page in pages()} <= {str(path.relative_to(ROOT)) for path in reached}


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
