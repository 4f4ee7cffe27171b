"""Pages as a reader sees them: fenced blocks, code inside sentences, headings, links."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[3]
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)``` *$", re.M | re.S)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.M)


@dataclass(frozen=True)
class Block:
    """A fenced block. `line`: of its first line of content, from 1."""

    page: str
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    """One Markdown file. `name`: its path in the repository."""

    name: str
    text: str

    @cached_property
    def blocks(self) -> list[Block]:
        found = []
        for match in _FENCE.finditer(self.text):
            text = re.sub(f"^{match['indent']}", "", match["text"], flags=re.M)
            found.append(Block(self.name, self.text[: match.start()].count("\n") + 2, match["language"], text))
        return found

    @cached_property
    def prose(self) -> str:
        """The text without fenced blocks, with the same number of lines."""
        return _FENCE.sub(lambda match: "\n" * match[0].count("\n"), self.text)

    @property
    def spans(self) -> list[tuple[int, str]]:
        """Line and text of code inside sentences."""
        return [(self.prose[: match.start()].count("\n") + 1, match[1]) for match in _SPAN.finditer(self.prose)]

    @property
    def links(self) -> list[tuple[int, str]]:
        """Line and target of each link and picture."""
        prose = _SPAN.sub(lambda match: "x" * len(match[0]), self.prose)
        return [(prose[: match.start()].count("\n") + 1, match[1] or match[2]) for match in _LINK.finditer(prose)]

    @cached_property
    def anchors(self) -> set[str]:
        """What `#…` may name here, as GitHub makes it from headings."""
        found: Counter[str] = Counter()
        names = set()
        for heading in _HEADING.findall(self.prose):
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
            names.add(f"{slug}-{found[slug]}" if found[slug] else slug)
            found[slug] += 1
        return names


def read_page(path: Path) -> Page:
    return Page(str(path.relative_to(ROOT)), path.read_text())


def pages() -> list[Page]:
    """README, CONTRIBUTING, and all of docs/."""
    return [read_page(path) for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))]


def manual() -> list[Page]:
    """What must hold today: all pages but the decisions, which tell what was, and what may come."""
    return [page for page in pages() if not page.name.startswith("docs/design/")]
