"""The linter of pages: what it finds, what it leaves alone, and that its list only shrinks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import prose

LONG = " ".join(["word"] * 31) + "."


def found(text: str, page: str = "docs/page.md") -> list[tuple[int, str]]:
    return [(each.line, each.what) for each in prose.findings(page, text)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LONG, "31 words, at most 30"),
        ("One; two; three.", "two semicolons"),
        ("| kind |\n|---|\n| one; two; three |", "two semicolons"),
        ("The job goes on there.", '"goes on"'),
        ("- It waits so that a rank\n  can load.", '"so that"'),
        ("A rank is told to stop.", '"is told"'),
        ("A key that nobody has.", '"nobody"'),
        ("Fine. Who waits long is first.", "a clause as subject"),
        ("The job ends; what was committed stays.", "a clause as subject"),
        ("Measured on 2026-11-23.", "a date belongs in docs/benchmarks or docs/tried.md"),
    ],
)
def test_a_sentence_that_is_read_twice_is_found(text: str, what: str) -> None:
    assert [each for _, each in found(f"# Page\n\n{text}\n")] == [what]


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{LONG}\n```",
        f"# {LONG}",
        f"    {LONG}",
        "`" + LONG + "`",
        "- " + " ".join(["word"] * 20) + ":\n\n  - " + " ".join(["word"] * 20),
        "What does a plan cost?",
        "| what follows |\n|---|\n| what was committed |",
        "The task goes on a GPU, in `data/2026-11-23`.",
        " ".join(["word"] * 20) + ", e.g. one. " + " ".join(["word"] * 20) + ".",
    ],
)
def test_other_text_is_left_alone(text: str) -> None:
    assert found(f"# Page\n\n{text}\n") == []


def test_benchmarks_and_decisions_have_dates() -> None:
    assert found("Measured on 2026-11-23.", "docs/benchmarks/a.md") == found("Decided on 2026-11-23.", "docs/design/001.md") == []


def test_a_finding_names_the_line_of_its_paragraph() -> None:
    assert found("# Page\n\n```\nx\n```\n\nShort.\n\nIt is told.\n") == [(9, '"is told"')]


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one listed page that may have two findings."""
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# Page\n")
    (tmp_path / "left.txt").write_text("2 docs/page.md\n")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "LIST", tmp_path / "left.txt")
    return tmp_path


@pytest.mark.parametrize(("count", "code", "left"), [(3, 1, "2"), (2, 0, "2"), (1, 0, "1"), (0, 0, "")])
def test_a_count_falls_and_never_rises(house: Path, monkeypatch: pytest.MonkeyPatch, count: int, code: int, left: str) -> None:
    (house / "docs" / "page.md").write_text("It is told.\n\n" * count)
    monkeypatch.setattr(sys, "argv", ["prose.py", "--lower"])
    assert prose.main() == code
    assert (house / "left.txt").read_text() == (f"{left} docs/page.md\n" if left else "")


def test_a_page_that_is_not_listed_may_have_none(house: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (house / "docs" / "new.md").write_text("It is told.\n")
    monkeypatch.setattr(sys, "argv", ["prose.py"])
    assert prose.main() == 1
    assert "docs/new.md:1" in capsys.readouterr().out
