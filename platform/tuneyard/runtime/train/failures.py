"""Explains why an attempt failed: the kind of failure, which decides the reaction, and its cause. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuneyard.api import Blame, FailureKind, JobFailed, StorageError, TuneyardError
from tuneyard.planning import Plan
from tuneyard.training.lost_peer import is_collateral

_OUT_OF_MEMORY = re.compile(
    r"(?i)out of memory|OutOfMemoryError|CUDA error: out of memory|cannot allocate memory|MemoryError|DefaultCPUAllocator: can't allocate"
    r"|running low on memory"
)
_NO_NETWORK = re.compile(r"(?i)gloo|nccl|connect\w*|unable to find address|socket|DistNetworkError|rendezvous")
_DISK_FULL = re.compile(r"(?i)no space left on device|disk quota exceeded|\[Errno 28\]|ENOSPC")
_FATAL = re.compile(r"Fatal Python error: (?P<what>[^\n]+)")


@dataclass(frozen=True)
class Lost:
    """A rank whose process died without a report. `node`: its node in Kubernetes; `machine_lost`: why its machine is lost too, or empty."""

    rank: int
    pid: int = 0
    host: str = ""
    node: str = ""
    machine_lost: str = ""
    exit_code: int | None = None
    """Exit code of its process, negative for the signal that ended it; None if unknown."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The facts about a failed attempt.

    `lost`: ranks that died, the first one first. `raised`: rank -> its exception (type and message as text). `told`: Tuneyard's own errors
    among these. `log`: place of the log of `first_to_fail`, for people; `log_tail`: its last lines; `quoted`: the part of them for the
    message. `oom_kills`: processes that the kernel killed for lack of memory during the attempt. `go_on`: how a person resumes after
    correcting the cause; empty if a hub starts the next attempt.
    """

    lost: Sequence[Lost] = ()
    raised: dict[int, str] | None = None
    told: Sequence[TuneyardError] = ()
    log_tail: str = ""
    quoted: str = ""
    log: str = ""
    oom_kills: int = 0
    go_on: str = ""


def first_to_fail(lost: Sequence[Lost], raised: Mapping[int, str]) -> int | None:
    """The rank whose failure explains those of the others; None if no failed rank is known."""
    if lost:
        return lost[0].rank
    ranked = sorted(raised, key=lambda rank: (is_collateral(raised[rank]), rank))
    return ranked[0] if ranked else None


def explain(evidence: Evidence) -> TuneyardError:
    """The one error of an attempt: kind, cause, next step, and blame. A lost rank explains the errors of its peers, not the reverse."""
    error = _explain(evidence)
    node = evidence.lost[0].node if evidence.lost and error.kind is FailureKind.NODE_LOST else error.blame.node
    rank = error.blame.rank if error.blame.rank is not None else first_to_fail(evidence.lost, evidence.raised or {})
    error.blame = Blame(rank=rank, node=node, log_tail=evidence.log_tail)
    return error


def _explain(evidence: Evidence) -> TuneyardError:
    lost = evidence.lost[0] if evidence.lost else None
    if evidence.told and not (lost and lost.machine_lost):
        return evidence.told[0]
    if lost:
        return _explain_lost(evidence, lost)
    raised = evidence.raised or {}
    rank = first_to_fail((), raised)
    if rank is None:
        return JobFailed("the attempt ended without a result", _see(evidence), kind=FailureKind.INTERNAL)
    message = raised[rank]
    if _OUT_OF_MEMORY.search(message):
        return JobFailed(f"rank {rank} ran out of memory: {_first_line(message)}", _smaller(evidence), kind=FailureKind.OUT_OF_MEMORY)
    if _DISK_FULL.search(message):
        return StorageError(f"rank {rank} met a full disk: {_first_line(message)}", "free space there" + _then(evidence, ","))
    if is_collateral(message):
        return JobFailed(f"rank {rank} lost its peers: {_first_line(message)}", _see(evidence), kind=FailureKind.NETWORK)
    return JobFailed(f"rank {rank} failed: {_first_line(message)}", _see(evidence), kind=FailureKind.INTERNAL)


def _explain_lost(evidence: Evidence, lost: Lost) -> TuneyardError:
    who = f"rank {lost.rank}" + (f" (process {lost.pid}{' on ' + lost.host if lost.host else ''})" if lost.pid else "")
    fatal = _FATAL.search(evidence.log_tail)
    if evidence.oom_kills or _OUT_OF_MEMORY.search(evidence.log_tail):
        by = "was killed by the kernel for lack of memory" if evidence.oom_kills else "ran out of memory and ended"
        return JobFailed(f"{who} {by}{evidence.quoted}", _smaller(evidence), kind=FailureKind.OUT_OF_MEMORY)
    if lost.machine_lost:
        how = f"is lost with its machine, which {lost.machine_lost}"
    elif fatal:
        how = f"crashed ({fatal['what']})"
    elif lost.exit_code is not None and lost.exit_code not in (0, -signal.SIGKILL):
        how = f"ended without a word, {_code(lost.exit_code)}"
    else:
        how = "died without a word: it was killed from outside (SIGKILL), or its machine was lost"
    return JobFailed(f"{who} {how}{evidence.quoted}", _see(evidence), kind=FailureKind.NODE_LOST)


def _code(code: int) -> str:
    return f"by {signal.Signals(-code).name}" if -code in set(signal.Signals) else f"with exit code {code}"


def _see(evidence: Evidence) -> str:
    return (f"read {evidence.log}" if evidence.log else "look at the logs") + _then(evidence, ",")


def _smaller(evidence: Evidence) -> str:
    less = "set a smaller batch.micro or data.maxLength, recompute: true, a higher ZeRO stage, or offload"
    return less + _then(evidence, ";")


def _then(evidence: Evidence, mark: str) -> str:
    """The last part of a next step: how a person resumes."""
    return f"{mark} then {evidence.go_on}" if evidence.go_on else ""


def _first_line(message: str) -> str:
    return next((line.strip() for line in message.splitlines() if line.strip()), "no message")


def could_not_start(task: str, why: str) -> TuneyardError:
    """The error of an attempt that Ray gave up before any rank ran. `why`: Ray's message."""
    if _NO_NETWORK.search(why):
        return JobFailed(
            f"the ranks of task {task} could not reach each other: {why}",
            "check the network between the nodes, and the interface that the Cluster object names (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)",
            kind=FailureKind.NETWORK,
        )
    return JobFailed(
        f"the ranks of task {task} could not start: {why}",
        "ask for fewer workers in resources.workers, or free CPUs and GPUs of the Ray cluster",
        kind=FailureKind.INTERNAL,
    )


def shrunk(plan: Plan) -> Plan | None:
    """The plan with at most half the micro-batch and the same global batch; None at micro-batch 1. The estimates were made for the larger
    micro-batch: the speed is dropped, and the memory is an upper bound."""
    rows = plan.micro_batch * plan.grad_accum
    smaller = [size for size in range(1, plan.micro_batch // 2 + 1) if rows % size == 0]
    if not smaller:
        return None
    return replace(plan, micro_batch=smaller[-1], grad_accum=rows // smaller[-1], speed=None)
