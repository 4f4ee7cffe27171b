"""How a pod that must go is told, and kept until its work has stopped."""

from __future__ import annotations

from pathlib import Path

from tuneyard.runtime.nodes.pod import PodNotice
from tuneyard_operators.rendering.container import lifecycle


def test_notice_is_given_by_the_hook_and_busy_keeps_it(tmp_path: Path) -> None:
    notice = PodNotice(tmp_path)
    notice.begin_work()
    assert (tmp_path / "busy").exists()
    assert not notice.given
    (tmp_path / "notice").touch()
    assert notice.given
    notice.end_work()
    notice.end_work()
    assert not (tmp_path / "busy").exists()


def test_the_hook_speaks_of_the_same_files() -> None:
    (hook,) = lifecycle(of_worker=True)["preStop"]["exec"]["command"][2:]
    assert "/scratch/notice" in hook
    assert "/scratch/busy" in hook


def test_outside_of_a_pod_there_is_no_notice() -> None:
    assert PodNotice.here({}) is None


def test_a_disk_that_cannot_be_written_to_stops_nothing() -> None:
    PodNotice(Path("/proc/nowhere")).begin_work()
