"""`tuneyard data columns` and `tuneyard data reorder` on the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tuneyard.cli import main
from tuneyard.data.tables import TableReader, open_table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table `t` of 200 columns, of which every tenth was read, and its log."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    random = np.random.default_rng(0)
    pq.write_table(pa.table({f"f{k}": random.normal(size=300) for k in range(200)}), tmp_path / "t" / "0.parquet")
    list(TableReader(open_table("t"), [f"f{k}" for k in range(0, 200, 10)], access_log="log.jsonl"))
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_columns_tells_what_a_rewrite_would_save(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "columns", "t", "--log", "log.jsonl", "--hole-kib", "64"]) == 0
    shown = capsys.readouterr().out
    assert "300 rows, 200 columns" in shown
    assert "20 features were read" in shown
    assert "would take 0.10 x the bytes" in shown


@pytest.mark.usefixtures("folder")
def test_columns_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "columns", "t", "--log", "log.jsonl", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["before"]["read_bytes"] > 9 * found["after"]["read_bytes"]
    assert set(found["order"][:20]) == {f"f{k}" for k in range(0, 200, 10)}
    assert len(found["order"]) == found["columns"] == 200


@pytest.mark.usefixtures("folder")
def test_reorder_writes_the_table_anew_and_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["data", "reorder", "t", "--log", "log.jsonl", "--out"]
    assert main([*command, "ordered"]) == 0
    assert "ordered: 1 file written" in capsys.readouterr().out
    assert set(open_table("ordered").schema.names[:20]) == {f"f{k}" for k in range(0, 200, 10)}
    assert main([*command, "ordered"]) == 0
    assert "ordered: 0 files written, 1 was there from an earlier start" in capsys.readouterr().out
    assert main([*command, "t"]) == 2
    assert "error: t lies inside the table t" in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_a_log_of_another_table_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.jsonl").write_text('{"features": ["age"], "rows": 1}\n')
    for command in (["columns", "t", "--log", "other.jsonl"], ["reorder", "t", "--log", "other.jsonl", "--out", "o"]):
        assert main(["data", *command]) == 2
        assert "has none of the features in the log" in capsys.readouterr().err
    assert not Path("o").exists()
    assert main(["data", "columns", "t", "--log", "none.jsonl"]) == 2
    assert "access log none.jsonl: No such file" in capsys.readouterr().err


def test_the_commands_load_neither_pyarrow_nor_torch() -> None:
    code = (
        "import sys, tuneyard.cli.data.command, tuneyard.data.tables; print([m for m in ('pyarrow', 'torch', 'numpy') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
