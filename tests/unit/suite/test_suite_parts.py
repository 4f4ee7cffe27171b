"""The table of parts: every test file is in one, what it names exists, and the budgets keep to their sum."""

from __future__ import annotations

from pathlib import Path

from tests.suite.imports import PRODUCT, ROOT, find_modules
from tests.suite.parts import BUDGET_CPU_MIN, PARTS, long_parts


def test_every_test_file_is_in_exactly_one_part() -> None:
    for file in (ROOT / "tests").rglob("test_*.py"):
        name = file.relative_to(ROOT)
        owners = [part.name for part in PARTS for path in part.paths if name.is_relative_to(path)]
        assert len(owners) == 1, f"{name} is in {owners or 'no part'}: put it into one of tests/suite/parts.py"


def test_what_a_part_names_exists() -> None:
    assert [path for part in PARTS for path in (*part.paths, *part.reads) if not (ROOT / path).exists()] == []
    assert {program for part in PARTS for program in part.programs} <= set(find_modules(PRODUCT))


def test_budgets_keep_to_their_sum() -> None:
    assert sum(part.cpu_min for part in PARTS) <= BUDGET_CPU_MIN


def test_what_pytest_remembers_of_a_part_is_its_own() -> None:
    lines = [part.command_line(Path("build/tests") / f"{part.name}.xml", again=True) for part in PARTS if part.paths]
    memories = [line[line.index("-o") + 1] for line in lines]
    assert len(set(memories)) == len(memories)
    assert all("--last-failed" in line for line in lines)


def test_long_parts_run_the_long_tests_and_all_examples_of_the_same_files() -> None:
    parts = {part.name: part for part in PARTS if part.paths}
    chosen = [part for part in long_parts(PARTS) if not part.beside]
    assert [part.name for part in chosen] == list(parts)
    for part in chosen:
        line = part.command_line(Path("build/tests") / f"{part.name}.xml")
        assert line[line.index("-m", 3) + 1] == "long or hypothesis"
        assert "--hypothesis-profile=long" in line
        assert line[-len(part.paths) :] == list(parts[part.name].paths)
        assert part.limit_s > parts[part.name].limit_s
