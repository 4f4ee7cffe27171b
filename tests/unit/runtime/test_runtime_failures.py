"""Failures told apart."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders.models import cpu_plan

from tuneyard.api import BadInput, Blame, FailureKind, JobFailed, StorageError
from tuneyard.runtime.train.failures import Evidence, Lost, could_not_start, explain, shrunk


def test_a_rank_that_died_explains_the_errors_of_its_peers() -> None:
    evidence = Evidence(
        lost=[Lost(1, 4711, "node-a")],
        raised={0: "RuntimeError: [gloo] Connection closed by peer [10.0.0.2]:1234"},
        log="logs/train-rank-1.log",
        log_tail="step 7",
        quoted="; its last lines:\n  step 7",
    )
    error = explain(evidence)
    assert error.kind is FailureKind.NODE_LOST
    assert error.cause.startswith("rank 1 (process 4711 on node-a) died without a word")
    assert "step 7" in error.cause
    assert "logs/train-rank-1.log" in error.next_step


def test_the_kernel_killing_a_rank_is_out_of_memory() -> None:
    error = explain(Evidence(lost=[Lost(0, 12)], oom_kills=1))
    assert error.kind is FailureKind.OUT_OF_MEMORY
    assert "killed by the kernel for lack of memory" in error.cause
    assert "batch.micro" in error.next_step


def test_a_crash_is_named() -> None:
    error = explain(Evidence(lost=[Lost(0, 12)], log_tail="Fatal Python error: Segmentation fault\n  File ..."))
    assert error.kind is FailureKind.NODE_LOST
    assert "crashed (Segmentation fault)" in error.cause


def test_our_own_errors_stay_as_they_are() -> None:
    own = BadInput("chat 7 has no assistant turn", "remove it")
    assert explain(Evidence(told=[own], raised={0: "BadInput: chat 7"}, lost=[Lost(1)])) is own


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", FailureKind.OUT_OF_MEMORY),
        ("RuntimeError: DefaultCPUAllocator: can't allocate memory", FailureKind.OUT_OF_MEMORY),
        ("OSError: [Errno 28] No space left on device", FailureKind.STORAGE),
        ("RuntimeError: Connection reset by peer", FailureKind.NETWORK),
        ("DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed. Did the remote server crash?", FailureKind.NETWORK),
        ("KeyError: 'hidden_size'", FailureKind.INTERNAL),
    ],
)
def test_errors_of_libraries_are_told_apart(message: str, kind: FailureKind) -> None:
    error = explain(Evidence(raised={2: message}))
    assert error.kind is kind
    assert "rank 2" in error.cause
    assert error.next_step


def test_the_first_cause_wins_over_what_followed_from_it() -> None:
    error = explain(Evidence(raised={0: "RuntimeError: Connection closed by peer", 1: "KeyError: 'x'"}))
    assert error.cause == "rank 1 failed: KeyError: 'x'"


@given(micro=st.integers(1, 64), accumulation=st.integers(1, 64), workers=st.integers(1, 8))
def test_shrinking_keeps_the_global_batch(micro: int, accumulation: int, workers: int) -> None:
    plan = cpu_plan(micro_batch=micro, grad_accum=accumulation, workers=workers)
    smaller = shrunk(plan)
    if micro == 1:
        assert smaller is None
    else:
        assert smaller is not None
        assert smaller.micro_batch <= micro // 2
        assert smaller.global_batch == plan.global_batch


def test_a_machine_that_is_lost_explains_even_what_its_peers_say_in_our_own_words() -> None:
    told = StorageError("the checkpoint of step 7 could not be written: rank 1 was not heard of again")
    lost = Lost(1, 4711, "pod b on node gpu-8", "gpu-8", "is gone with all its processes")
    error = explain(Evidence(lost=[lost], told=[told], raised={0: f"StorageError: {told}"}, log_tail="step 7"))
    assert error.kind is FailureKind.NODE_LOST
    assert error.cause == "rank 1 (process 4711 on pod b on node gpu-8) is lost with its machine, which is gone with all its processes"
    assert error.blame == Blame(rank=1, node="gpu-8", log_tail="step 7")


def test_who_is_to_blame_crosses_processes() -> None:
    error = JobFailed("x", kind=FailureKind.NODE_LOST, blame=Blame(rank=3, node="gpu-8"))
    assert pickle.loads(pickle.dumps(error)).blame == error.blame


def test_under_a_hub_nobody_is_sent_to_resume_by_hand() -> None:
    for evidence in (
        Evidence(raised={0: "KeyError: 'x'"}),
        Evidence(raised={0: "CUDA out of memory"}),
        Evidence(lost=[Lost(0)], oom_kills=1),
    ):
        assert explain(replace(evidence, go_on="go on with --resume")).next_step.endswith(" then go on with --resume")
        assert "then" not in explain(evidence).next_step


def test_an_error_of_a_rank_names_it_and_blames_no_node() -> None:
    error = explain(Evidence(raised={2: "KeyError: 'x'"}, log_tail="Traceback"))
    assert error.blame == Blame(rank=2, log_tail="Traceback")


@pytest.mark.parametrize(
    ("why", "kind"),
    [
        ("RuntimeError: [enforce fail at device.cc] Unable to find address for: eth9", FailureKind.NETWORK),
        ("DistNetworkError: The client socket has failed to connect to 10.0.0.4:29500", FailureKind.NETWORK),
        ("WorkerGroupStartupTimeoutError: the placement group is not ready", FailureKind.INTERNAL),
    ],
)
def test_ranks_that_never_began(why: str, kind: FailureKind) -> None:
    assert could_not_start("tune", why).kind is kind
