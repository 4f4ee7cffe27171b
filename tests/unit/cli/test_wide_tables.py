"""Tables with 200,000 columns, as exports of sensors and of genes have: commands answer in few words."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.cli import main

COLUMNS = 200_000


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`pairs.csv`: questions and answers beside the others. `numbers.csv`: the others alone."""
    folder = tmp_path_factory.mktemp("wide")
    names, cells = ",".join(f"c{n}" for n in range(COLUMNS)), ",".join("1" for _ in range(COLUMNS))
    (folder / "pairs.csv").write_text("".join([f"question,answer,{names}\n", *(f"the cat {n}?,it sat {n},{cells}\n" for n in range(3))]))
    (folder / "numbers.csv").write_text("".join([f"{names}\n", *(f"{cells}\n" for _ in range(3))]))
    return folder


def test_pairs_among_many_columns_are_found(tables: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tables)
    assert main(["init", "--data", "pairs.csv"]) == 0
    assert main(["validate", "job.yaml"]) == 0
    said = capsys.readouterr().err
    assert "pairs.csv: prompt-completion, 3 samples; columns prompt = question, completion = answer" in said
    assert len(said) < 10_000


def test_columns_that_mean_nothing_are_named_in_part(
    tables: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tables)
    assert main(["init", "--data", "numbers.csv", "--out", "other.yaml"]) == 2
    said = capsys.readouterr().err
    assert "columns found: c0, c1, " in said
    assert len(said) < 10_000
