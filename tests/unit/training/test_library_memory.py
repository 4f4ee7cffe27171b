"""Memory of the libraries of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.training import memory
from tuneyard.training.memory import LibraryMemory

MAPPING = """7f00-7f10 r-xp 00000000 08:01 1 /lib/libtorch.so.2
Size:               9000 kB
Rss:                {rss} kB
7f20-7f30 rw-p 00000000 00:00 0
Rss:                 500 kB
"""


@pytest.fixture(autouse=True)
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kernel's files of a process that holds 300 MB."""
    (tmp_path / "status").write_text("VmRSS:\t  300000 kB\n")
    monkeypatch.setattr(memory, "STATUS", tmp_path / "status")
    monkeypatch.setattr(memory, "SMAPS", tmp_path / "smaps")
    monkeypatch.setattr(LibraryMemory, "_are_read", False)
    return tmp_path


def test_pages_that_a_process_reads_until_its_first_step_count_once(system: Path) -> None:
    (system / "smaps").write_text(MAPPING.format(rss=1000))
    first = LibraryMemory()
    (system / "smaps").write_text(MAPPING.format(rss=5000))

    assert first.in_gb() == pytest.approx((300_000 + 4000) * 1024 / 1e9)

    (system / "smaps").unlink()  # a later run does not ask
    assert LibraryMemory().in_gb() == pytest.approx(300_000 * 1024 / 1e9)


def test_a_system_that_does_not_report_pages_reports_what_is_held() -> None:
    assert LibraryMemory().in_gb() == pytest.approx(300_000 * 1024 / 1e9)
