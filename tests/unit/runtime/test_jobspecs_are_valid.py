"""Every example in jobspecs/ is what it claims to be: fields, rules, SKUs, and the files beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.cli import main

JOBSPECS = Path(__file__).parents[3] / "jobspecs"


@pytest.mark.parametrize("name", sorted(str(path.relative_to(JOBSPECS)) for path in JOBSPECS.rglob("*.yaml")))
def test_the_example_is_valid(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["validate", str(JOBSPECS / name)]) == 0, capsys.readouterr().err
