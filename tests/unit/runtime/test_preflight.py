"""What is found wrong with a machine before its ranks start, and whom that blames."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuneyard.api import FailureKind, StorageError
from tuneyard.runtime.gang.all_reduce import bus_bandwidth
from tuneyard.runtime.nodes.pod import Pod
from tuneyard.runtime.nodes.preflight import Finding, NodeChecks, check_node, clock_findings, gpu_errors, verdict

HERE = Pod("pod-0", "gpu-7")
THERE = Pod("pod-1", "gpu-8")


def checks(folder: Path, **changes: object) -> NodeChecks:
    fields = {"scratch": folder / "scratch", "scratch_bytes": 0, "output": str(folder / "out"), "probe": "logs/x", "gpus": False}
    return NodeChecks(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_sound_machine_leaves_nothing_behind(tmp_path: Path) -> None:
    assert check_node(checks(tmp_path), HERE) == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_disk_that_is_too_small(tmp_path: Path) -> None:
    error = verdict(check_node(checks(tmp_path, scratch_bytes=10**18), HERE))
    assert error is not None
    assert error.kind is FailureKind.NODE_LOST
    assert error.blame.node == "gpu-7"
    assert "pod pod-0 on node gpu-7" in error.cause
    assert "storage.scratch asks for 1,000,000,000.0 GB" in error.cause


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file")
    assert [finding.check for finding in check_node(checks(tmp_path), HERE)] == ["disk"]


def test_an_output_that_cannot_be_written_blames_no_node(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    error = verdict(check_node(checks(tmp_path), HERE))
    assert isinstance(error, StorageError)
    assert error.kind is FailureKind.STORAGE
    assert error.blame.node == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("0, 0, No, No", ""),
        ("0, [N/A], [N/A], [N/A]", ""),
        ("3, 2, No, No", "GPU 3 has 2 uncorrected memory errors"),
        ("1, 0, Yes, No", "GPU 1 waits for a reset"),
        ("1, 0, [N/A], Yes", "GPU 1 has no spare memory rows"),
        ("1, 0, [N/A], 1", "GPU 1 has no spare memory rows"),
    ],
)
def test_what_the_driver_says_of_gpus(line: str, words: str) -> None:
    found = gpu_errors(line)
    assert len(found) == (1 if words else 0)
    assert words in "".join(found)


def test_clocks_are_compared_with_most_of_the_others() -> None:
    assert clock_findings({HERE: 0.1, THERE: -0.2}) == []
    # It is the one who asks whose clock is wrong.
    assert clock_findings({HERE: 90.0, THERE: 90.5, Pod("c", "c"): 89.8}) == []
    (finding,) = clock_findings({HERE: 0.0, THERE: 20.0, Pod("c", "c"): 0.1})
    assert (finding.pod, finding.fatal) == (THERE, False)
    (finding,) = clock_findings({HERE: 0.0, THERE: -90.0, Pod("c", "c"): 0.1})
    assert finding.fatal
    assert "90 s behind" in finding.message


def test_a_sick_machine_is_blamed_before_a_storage_that_it_may_be_the_reason_for() -> None:
    error = verdict([Finding(HERE, "storage", "away"), Finding(THERE, "gpu", "GPU 3 is broken"), Finding(HERE, "clock", "x", fatal=False)])
    assert error is not None
    assert error.blame.node == "gpu-8"
    assert "(and 1 more findings)" in error.cause
    assert verdict([Finding(HERE, "clock", "5 s ahead", fatal=False)]) is None


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    # 8 ranks, 1 GB in 10 ms: algorithm bandwidth 100 GB/s, times 2 * 7 / 8.
    assert bus_bandwidth(10**9, 8, 0.01) == pytest.approx(175.0)
