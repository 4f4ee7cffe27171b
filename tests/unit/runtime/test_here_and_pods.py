"""What the machines of a local run and those of an attempt answer to a task. With real ranks and pods: tests/integration/runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clusters.run_machines import assigned, here, pods

from tuneyard.api import Blame, FailureKind, JobFailed
from tuneyard.runtime.gang.mailbox import RankProcess
from tuneyard.runtime.interrupt import never
from tuneyard.runtime.machines import Machines, engine_log, process_log, rank_log
from tuneyard.runtime.nodes.pod import Pod


def test_a_log_has_one_name_on_its_machine_and_one_among_the_copies(tmp_path: Path) -> None:
    local, attempt = here(tmp_path), pods(tmp_path, assignment=assigned(tmp_path, attempt=3))
    assert local.address(rank_log("chat", 1)) == str(tmp_path / "out/logs/chat-rank-1.log")
    assert attempt.address(rank_log("chat", 1)) == f"{tmp_path}/out/logs/t1/3/rank-1"
    assert attempt.address(rank_log("search-7", 1, "trial-7-rank")).endswith("/3/trial-7-rank-1")
    assert attempt.address(process_log("t1")).endswith("/3/process")
    assert attempt.address(engine_log("chat", 0)).endswith("/3/engine-0")


def test_the_last_lines_of_a_local_log_hold_no_secret(tmp_path: Path) -> None:
    local = here(tmp_path, secrets=["hunter2"])
    local.logs.mkdir(parents=True)
    (local.logs / "chat-rank-0.log").write_text("--- attempt 1, process 7\nstep 1\nthe token is hunter2\n")
    assert local.tail(rank_log("chat", 0)) == "step 1\nthe token is ***"
    assert local.tail(rank_log("chat", 1)) == ""


def test_a_person_is_told_how_to_go_on_and_shown_the_log_and_a_hub_is_not(tmp_path: Path) -> None:
    local, attempt = here(tmp_path), pods(tmp_path)
    assert (local.go_on, local.quoted("step 1\nstep 2")) == ("go on with --resume", "; its last lines:\n  step 1\n  step 2")
    assert (attempt.go_on, attempt.quoted("step 1")) == ("", "")
    assert local.quoted("") == ""


def test_attempts_are_numbered_by_their_starts_here_and_by_the_hub_in_pods(tmp_path: Path) -> None:
    local, attempt = here(tmp_path), pods(tmp_path, assignment=assigned(tmp_path, attempt=3))
    assert [local.number(starts) for starts in (0, 1, 2)] == [1, 1, 2]
    assert [attempt.number(starts) for starts in (0, 1, 2)] == [3, 3, 3]
    assert (local.first_start(3), attempt.first_start(3)) == (1, 9)
    assert (attempt.run, attempt.stop_grace_s()) == ("run-1", 30.0)
    assert local.run != here(tmp_path).run, "no two runs hold the same fencing token"


def test_pods_that_nothing_runs_in_have_lost_nothing(tmp_path: Path) -> None:
    process = RankProcess(0, 4711, "host", "log", Pod("pod-0", "gpu-1"), "ray-node")
    machines: Machines
    for machines in (here(tmp_path), pods(tmp_path)):
        machines.check_living()
        assert (machines.gone([process]), machines.why_lost(process), machines.noticed) == ([], "", False)


@pytest.mark.parametrize("kind", [FailureKind.OUT_OF_MEMORY, FailureKind.USER_ERROR])
def test_what_is_not_the_machines_fault_starts_again_on_them(tmp_path: Path, kind: FailureKind) -> None:
    for machines in (here(tmp_path), pods(tmp_path)):
        assert machines.can_go_on(JobFailed("x", kind=kind), 2, never)


def test_a_node_that_fails_twice_is_not_trusted_a_third_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = pods(tmp_path)
    monkeypatch.setattr(attempt._nodes, "room", lambda _kind: 2.0)
    again = [
        attempt.can_go_on(JobFailed("x", kind=FailureKind.NODE_LOST, blame=Blame(node=node)), 2, never)
        for node in ("gpu-1", "", "gpu-2", "", "gpu-1")
    ]
    assert again == [True, True, True, True, False]
