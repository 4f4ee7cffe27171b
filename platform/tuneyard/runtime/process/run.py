"""Runs the command of a process task. Its output is committed as a whole when the command exits 0, or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tuneyard.api import BadInput, Blame, FailureKind, JobFailed, ProcessTask
from tuneyard.runtime.environment import hide
from tuneyard.storage import EXECUTABLE, MANIFEST, Manifest, NotFound, Store, absolute, clean, fetch_folder, is_local, local_path
from tuneyard.tracking import Emit, Stage

OUTPUT_VARIABLE = "TUNEYARD_OUTPUT"
FILES = "files"
_SHOWN_LINES = 15
_POLL_S = 0.1
_GRACE_S = 10.0


@dataclass(frozen=True, kw_only=True)
class ProcessRequest:
    """One attempt at a process task. The command runs in the folder `base_dir`, and prints to `log`. `log_address`: the log, for people."""

    name: str
    task: ProcessTask
    base_dir: Path
    output: Store
    scratch: Path
    log: Path
    log_address: str
    secrets: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class ProcessResult:
    status: str
    """succeeded | stopped"""
    wall_s: float
    output: str = ""
    files: int = 0
    size_bytes: int = 0


def run_process(request: ProcessRequest, emit: Emit, should_stop: Callable[[], bool]) -> ProcessResult:
    """Run the command, and commit the files that it wrote to $TUNEYARD_OUTPUT.

    Raises JobFailed with the command's last lines if it does not exit 0, or takes longer than `timeoutS`.
    """
    began = time.monotonic()
    folder = request.scratch / f"{request.name}-output"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = expand(request.task.command, folder)
    emit(Stage(task=request.name, name=f"running {Path(command[0]).name}"))
    if not _run(request, command, folder, should_stop):
        return ProcessResult(status="stopped", wall_s=time.monotonic() - began)
    if not any(folder.iterdir()):
        raise JobFailed(
            f"the command of task {request.name} exited 0 but wrote nothing to ${OUTPUT_VARIABLE}",
            f"let it write its files into the folder ${OUTPUT_VARIABLE}",
        )
    emit(Stage(task=request.name, name="saving"))
    manifest = request.output.commit_folder(folder, FILES)
    return ProcessResult(
        status="succeeded",
        wall_s=time.monotonic() - began,
        output=request.output.url(FILES),
        files=len(manifest.files),
        size_bytes=manifest.size_bytes,
    )


def working_folder(task: ProcessTask, base_dir: Path, copy: Path) -> Path:
    """The folder that the command runs in: the JobSpec's folder, or `workingDir`, which is copied below `copy` if it is remote.

    Raises BadInput if the folder does not exist.
    """
    if task.working_dir is None:
        return base_dir
    uri = absolute(task.working_dir, base_dir)
    check_working_dir(task, base_dir)
    try:
        folder = fetch_folder(uri, copy)
    except NotFound as error:
        raise _no_folder(uri) from error
    if not is_local(uri):  # stores do not keep the permission to execute
        for name in _executables(folder):
            (folder / name).chmod(0o755)
    return folder


def check_working_dir(task: ProcessTask, base_dir: Path) -> None:
    """Raises BadInput if `workingDir` is a folder of this machine that does not exist."""
    uri = absolute(task.working_dir or "", base_dir)
    if is_local(uri) and not local_path(uri).is_dir():
        raise _no_folder(uri)


def _no_folder(uri: str) -> BadInput:
    return BadInput(f"workingDir: there is no folder {uri}", "check process.workingDir: paths start at the JobSpec's folder")


def _executables(folder: Path) -> Sequence[str]:
    manifest = folder / MANIFEST
    extra = Manifest.from_json(manifest.read_bytes()).extra if manifest.exists() else {}
    return [clean(name) for name in extra.get(EXECUTABLE, ())]


def expand(command: Sequence[str], folder: Path) -> list[str]:
    """The command with $TUNEYARD_OUTPUT replaced; `python` means the interpreter that runs Tuneyard."""
    filled = [part.replace("${" + OUTPUT_VARIABLE + "}", str(folder)).replace(f"${OUTPUT_VARIABLE}", str(folder)) for part in command]
    return [sys.executable if filled[0] in ("python", "python3") else filled[0], *filled[1:]]


def _run(request: ProcessRequest, command: list[str], folder: Path, should_stop: Callable[[], bool]) -> bool:
    """Run the command. True if it exited 0, False if a stop was asked for."""
    request.log.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + request.task.timeout_s if request.task.timeout_s else None
    with request.log.open("wb") as log:
        process = _started(request, command, folder, log)
        try:
            while process.poll() is None:
                if should_stop():
                    return False
                if deadline is not None and time.monotonic() > deadline:
                    raise JobFailed(
                        f"the command of task {request.name} took longer than its timeoutS of {request.task.timeout_s:g} s"
                        + _quoted(last := _last(request)),
                        "give it more time in timeoutS, or less to do",
                        kind=FailureKind.DEADLINE,
                        blame=Blame(log_tail=last),
                    )
                time.sleep(_POLL_S)
        finally:
            _end(process)
    if process.returncode != 0:
        how = f"was ended by {signal.Signals(-process.returncode).name}" if process.returncode < 0 else f"exited {process.returncode}"
        raise JobFailed(
            f"the command of task {request.name} {how}{_quoted(last := _last(request))}",
            f"the whole output is in {request.log_address}",
            blame=Blame(log_tail=last),
        )
    return True


def _started(request: ProcessRequest, command: list[str], folder: Path, log: BinaryIO) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            cwd=request.base_dir,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, OUTPUT_VARIABLE: str(folder)},
            # A process group of its own: Ctrl-C reaches Tuneyard alone, which then ends the whole group.
            start_new_session=True,
        )
    except OSError as error:
        raise JobFailed(
            f"the command of task {request.name} cannot start: {command[0]}: {error.strerror}",
            "check the first word of `command`: a program on PATH, or a path from the JobSpec's folder",
        ) from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all processes that it started, first with SIGTERM, then with SIGKILL."""
    if process.poll() is not None:
        return
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last(request: ProcessRequest) -> str:
    with request.log.open(errors="replace") as file:
        lines = deque((hide(line.rstrip(), request.secrets) for line in file if line.strip()), maxlen=_SHOWN_LINES)
    return "\n".join(f"  {line}" for line in lines)


def _quoted(lines: str) -> str:
    return f":\n{lines}" if lines else ""
