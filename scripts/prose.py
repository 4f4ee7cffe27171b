"""Sentences of the pages that a reader has to read twice: `python scripts/prose.py [PAGE…]`, part of `make lint`.

Without pages, README, CONTRIBUTING and docs/ are compared with `scripts/prose_left.txt`, which says how many findings a page may have until
it is rewritten. A page that is not listed may have none. `--lower` writes smaller counts into the list, and never larger ones.
With pages, every finding in them is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = Path(__file__).with_name("prose_left.txt")
MOST_WORDS = 30
DATED = ("CONTRIBUTING.md", "docs/benchmarks/", "docs/design/", "docs/testing.md", "docs/tried.md")
"""Pages that tell when something was measured, decided or mended."""
_FENCE = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)``` *$|<!--.*?-->", re.M | re.S)
_ITEM = re.compile(r"\s*(?:[-*]|\d+\.)\s+(.*)")
_ROW = re.compile(r"\s*\|(.*)\|\s*$")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|vs|etc|et al|cf|resp)\.")
_END = re.compile(r"(?<=[.!?])[)\"”*_]*\s+")


@dataclass(frozen=True)
class Sentence:
    """`line`: of the block that it stands in, from 1. `text`: code is one word, and links are what they show. `cell`: of a table."""

    line: int
    text: str
    cell: bool

    @property
    def words(self) -> int:
        return sum(any(letter.isalnum() for letter in word) for word in self.text.split())


@dataclass(frozen=True)
class Finding:
    page: str
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.what}: {self.text if len(self.text) < 100 else self.text[:97] + '…'}"


RULES = {
    "two semicolons": re.compile(r";.*;"),
    '"goes on"': re.compile(r"\b(goes|go|went|going) on\b(?! (a|the|one|that|this|your) )"),
    '"so that"': re.compile(r"\bso that\b", re.I),
    '"is told"': re.compile(r"\b(is|are) told\b"),
    '"nobody"': re.compile(r"\bnobody\b", re.I),
}
"""Each counts once a sentence. The length of sentences, clauses as subjects and dates are rules of their own."""
_CLAUSE = re.compile(r"(?:^\W*|; )(?:Who|What)(?:ever)?\b(?!.*\?)", re.I)


def findings(page: str, text: str) -> Iterator[Finding]:
    """What is hard to read in the Markdown of `page`, in order."""
    for sentence in sentences(text):
        if sentence.words > MOST_WORDS:
            yield Finding(page, sentence.line, f"{sentence.words} words, at most {MOST_WORDS}", sentence.text)
        for what, pattern in RULES.items():
            if pattern.search(sentence.text):
                yield Finding(page, sentence.line, what, sentence.text)
        if not sentence.cell and _CLAUSE.search(sentence.text):
            yield Finding(page, sentence.line, "a clause as subject", sentence.text)
        if not page.startswith(DATED) and re.search(r"\b20\d\d-\d\d-\d\d\b", sentence.text):
            yield Finding(page, sentence.line, "a date belongs in docs/benchmarks or docs/tried.md", sentence.text)


def sentences(text: str) -> Iterator[Sentence]:
    """Of paragraphs, items of lists and cells of tables; headings and fenced blocks have none."""
    for line, block, cell in _blocks(_FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)):
        plain = re.sub(r"`[^`]+`", "CODE", block)
        plain = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", plain)
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain).replace("**", "")
        plain = _ABBREVIATIONS.sub(lambda match: match[1].replace(".", "") + " ", plain)
        yield from (Sentence(line, one.strip(), cell) for one in _END.split(plain) if one.strip())


def _blocks(text: str) -> Iterator[tuple[int, str, bool]]:
    """Line, text, and whether it is a cell of a table."""
    first, held, in_list = 0, "", False
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        item, row = _ITEM.match(line), _ROW.match(line)
        code = line.startswith("    ") and not in_list and not held
        heading = line.lstrip().startswith("#")
        if held and (item or row or heading or not line.strip()):
            yield first, held, False
            held = ""
        if row:
            yield from ((number, cell, True) for cell in re.split(r"(?<!\\)\|", row[1]) if re.search(r"\w", cell))
        elif line.strip() and not heading and not code:
            first = number if not held else first
            held = f"{held} {item[1] if item else line.lstrip('> ')}".strip()
        in_list = bool(item) or (in_list and (not line.strip() or line.startswith("  ")))


def allowed() -> dict[str, int]:
    """Page -> how many findings it may have."""
    return {page: int(count) for count, page in (line.split() for line in LIST.read_text().splitlines())}


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    parser.add_argument("--lower", action="store_true", help="write smaller counts into the list")
    options = parser.parse_args()
    files = [path.resolve() for path in options.pages] or pages()
    found = [each for path in files for each in findings(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))]
    if options.pages:
        print(*found, sep="\n")
        return bool(found)
    counts, listed = Counter(each.page for each in found), allowed()
    grown = [page for page in counts if counts[page] > listed.get(page, 0)]
    for page in grown:
        print(*(each for each in found if each.page == page), sep="\n")
        print(f"{page}: {counts[page]} findings, and {listed.get(page, 0)} are allowed; shorten a sentence of those above")
    left = {page: min(count, counts[page]) for page, count in listed.items() if counts[page]}
    if options.lower:
        LIST.write_text("".join(f"{count} {page}\n" for page, count in sorted(left.items())))
    elif left != listed and not grown:
        print("pages have become easier to read: python scripts/prose.py --lower writes that down")
    print(f"prose: {len(found)} findings in {len(counts)} of {len(files)} pages")
    return bool(grown)


if __name__ == "__main__":
    sys.exit(main())
