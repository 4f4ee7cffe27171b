"""Output of progress that cannot be written: a full disk below a log fails no run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TALKS = """
import sys
from tuneyard.cli.lasting import lasting_output
with lasting_output():
    for _ in range(5000):
        print("a line of progress", flush=True)
        print("a line of progress", file=sys.stderr)
from pathlib import Path
Path(sys.argv[1]).write_text("done")
"""


def test_a_program_on_a_full_disk_works_to_its_end_with_exit_code_0(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([sys.executable, "-c", TALKS, str(tmp_path / "end")], check=False, stdout=full, stderr=full)
    assert (ended.returncode, (tmp_path / "end").read_text()) == (0, "done")


def test_what_can_be_written_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    from tuneyard.cli.lasting import lasting_output

    with lasting_output():
        print("to stdout")
        print("to stderr", file=sys.stderr)
    assert capsys.readouterr() == ("to stdout\n", "to stderr\n")
