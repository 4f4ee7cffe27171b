"""Checks every machine of an attempt before its ranks start, so that a broken machine costs seconds, and is named.

It checks the scratch disk, the output storage, the clock and the GPUs. The ranks check the network between them: see `all_reduce`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tuneyard.api import Blame, FailureKind, JobFailed, StorageError, TuneyardError
from tuneyard.runtime.nodes.pod import Pod
from tuneyard.storage import open_store

CLOCK_WARN_S = 5.0
CLOCK_FAIL_S = 60.0
_PROBE_BYTES = 4 << 20
_GPU_QUERY = "ecc.errors.uncorrected.volatile.total,retired_pages.pending,remapped_rows.failure"
_PROGRAM_LIMIT_S = 120.0

Check = Literal["disk", "storage", "clock", "gpu"]
_KINDS = {
    "disk": FailureKind.NODE_LOST,
    "clock": FailureKind.NODE_LOST,
    "gpu": FailureKind.NODE_LOST,
    "storage": FailureKind.STORAGE,
}
_NEXT_STEPS = {
    "disk": "free or repair the disk of that node, or lower storage.scratch",
    "clock": "let that node's clock follow a time server (chrony, systemd-timesyncd)",
    "gpu": "cordon that node and have its GPU reset or replaced",
    "storage": "check that pods on that node reach the storage, with the keys of the job",
}


@dataclass(frozen=True)
class NodeChecks:
    """Requirements for a machine. `scratch_bytes`: free space that the job asks for, 0: any.

    `probe`: folder of the output for a test write. It must not be empty: stores on a file system remove a folder with its last file, while
    other machines write to it.
    """

    scratch: Path
    scratch_bytes: int
    output: str
    probe: str
    gpus: bool


@dataclass(frozen=True)
class Finding:
    """A problem of a machine. `fatal`: the attempt must not start there."""

    pod: Pod
    check: Check
    message: str
    fatal: bool = True


def check_node(checks: NodeChecks, pod: Pod) -> list[Finding]:
    """Check disk, storage and GPUs of this machine."""
    findings = [*_check_disk(checks, pod), *_check_storage(checks, pod)]
    return findings + (_check_gpus(pod) if checks.gpus else [])


def _check_disk(checks: NodeChecks, pod: Pod) -> list[Finding]:
    probe = checks.scratch / f"preflight-{uuid.uuid4().hex[:8]}"
    try:
        checks.scratch.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(checks.scratch).free
        if free < checks.scratch_bytes:
            wanted = f"{free / 1e9:,.1f} GB are free in {checks.scratch}, but storage.scratch asks for {checks.scratch_bytes / 1e9:,.1f} GB"
            return [Finding(pod, "disk", wanted)]
        with probe.open("wb") as file:
            file.write(os.urandom(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return [Finding(pod, "disk", f"the scratch folder {checks.scratch} cannot be written: {error.strerror or error}")]
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
    return []


def _check_storage(checks: NodeChecks, pod: Pod) -> list[Finding]:
    path, content = f"{checks.probe}/preflight-{uuid.uuid4().hex}", uuid.uuid4().bytes
    try:
        store = open_store(checks.output)
        store.put(path, content)
        same = store.get(path) == content
        store.delete(path)
    except StorageError as error:
        return [Finding(pod, "storage", f"the output cannot be used from there: {error.cause}")]
    return [] if same else [Finding(pod, "storage", f"{store.url(path)} was read back with other content than written")]


def _check_gpus(pod: Pod) -> list[Finding]:
    if shutil.which("nvidia-smi") is None:
        return []  # an image may lack it; then the ranks notice a lost GPU
    if _said_by(["nvidia-smi", "-L"]) is None:
        return [Finding(pod, "gpu", "nvidia-smi fails: the driver has lost a GPU, or is not there")]
    # Empty if the driver is too old for one of these fields.
    output = _said_by(["nvidia-smi", f"--query-gpu=index,{_GPU_QUERY}", "--format=csv,noheader,nounits"]) or ""
    findings = [Finding(pod, "gpu", message) for message in gpu_errors(output)]
    if shutil.which("dcgmi") and (diagnosis := _said_by(["dcgmi", "diag", "-r", "1"])) is not None and "| Fail" in diagnosis:
        findings.append(Finding(pod, "gpu", "`dcgmi diag -r 1` fails: " + "; ".join(_failed_lines(diagnosis))))
    return findings


def gpu_errors(output: str) -> list[str]:
    """Problems of GPUs in nvidia-smi's output: lines of index, uncorrected ECC errors, pages to retire, failed remapping. Pure."""
    errors = []
    for line in output.splitlines():
        index, ecc, pending, remapping = ([cell.strip() for cell in line.split(",")] + [""] * 4)[:4]
        if ecc.isdigit() and int(ecc):
            errors.append(f"GPU {index} has {ecc} uncorrected memory errors since it was reset")
        if pending.lower() == "yes":
            errors.append(f"GPU {index} waits for a reset to retire broken memory pages")
        if remapping.lower() in ("yes", "1"):
            errors.append(f"GPU {index} has no spare memory rows left for broken ones")
    return errors


def _failed_lines(diagnosis: str) -> list[str]:
    return [" ".join(line.replace("|", " ").split()) for line in diagnosis.splitlines() if "| Fail" in line]


def _said_by(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_LIMIT_S, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def clock_findings(skews_s: Mapping[Pod, float]) -> list[Finding]:
    """Machines whose clock differs from the median of all, so that a wrong clock of the head does not blame the others. Pure.

    `skews_s`: seconds that each machine is ahead of the asking machine.
    """
    if not skews_s:
        return []
    middle = sorted(skews_s.values())[len(skews_s) // 2]
    findings = []
    for pod, skew_s in skews_s.items():
        off_s = skew_s - middle
        if abs(off_s) > CLOCK_WARN_S:
            message = f"its clock is {abs(off_s):,.0f} s {'ahead' if off_s > 0 else 'behind'}"
            findings.append(Finding(pod, "clock", message, fatal=abs(off_s) > CLOCK_FAIL_S))
    return findings


def verdict(findings: Sequence[Finding]) -> TuneyardError | None:
    """The error of the attempt; None if no finding is fatal. Findings of machines come first; storage findings blame no node. Pure."""
    fatal = sorted((finding for finding in findings if finding.fatal), key=lambda finding: finding.check == "storage")
    if not fatal:
        return None
    first = fatal[0]
    others = f" (and {len(fatal) - 1} more findings)" if len(fatal) > 1 else ""
    cause = f"preflight: {first.pod}: {first.message}{others}"
    node = "" if first.check == "storage" else first.pod.node
    error = StorageError if first.check == "storage" else JobFailed
    return error(cause, _NEXT_STEPS[first.check], kind=_KINDS[first.check], blame=Blame(node=node))
