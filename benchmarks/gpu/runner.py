"""Runs the sections of a check: each in a process and a session of its own, with a limit, ended with all that it has started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass

import psutil
from benchmarks.gpu.cases import REHEARSAL, cases_of, last_shapes
from benchmarks.gpu.results import MODELS, OUT, tell, told

FRESH = 3
"""Exit code of a section whose other cases need a fresh process."""
_PATIENCE = 20 if REHEARSAL else 1
"""Limits are those of a GPU machine. A rehearsal may run on a busy machine, where they say nothing."""
_LEAST_S = 15.0
"""No section starts with less time left."""
_KILL_S = 10.0
_COMPILE_S = 60.0
"""How long offload waits for the compiled code."""


@dataclass(frozen=True)
class Section:
    name: str
    limit_s: float


SECTIONS = (
    Section("facts", 90),
    Section("train-1b", 110),
    Section("train-8b", 180),
    Section("offload", 150),
    Section("measure", 60),
    Section("tests", 120),
)
"""What is worth most comes first."""
SECOND = (
    Section("variable-length", 90),
    Section("compiled-layers", 120),
    Section("cudnn-first", 70),
    Section("fused-adamw", 60),
    Section("bf16-weights", 60),
    Section("largest-lora", 90),
    Section("largest-full", 60),
)
"""Trials of changes, for the minutes that are left."""
COMPILE = Section("compile", 300)


class Runner:
    """`command` starts a section in a process of its own, with the section's name as its last argument."""

    def __init__(self, command: list[str], budget_s: float) -> None:
        self._command = command
        self._ends = time.monotonic() + _PATIENCE * budget_s

    def run(self, sections: tuple[Section, ...]) -> None:
        compiling = self._start(COMPILE.name) if any(section.name == "offload" for section in sections) else None
        began = time.monotonic()
        try:
            for section in sections:
                if compiling is not None and section.name == "offload":
                    self._await_compiled(compiling, began)
                    compiling = None
                self._run_section(section)
        finally:
            if compiling is not None:
                end(compiling)

    def _await_compiled(self, compiling: subprocess.Popen[bytes], began: float) -> None:
        wait_s = min(_PATIENCE * _COMPILE_S, _PATIENCE * COMPILE.limit_s - (time.monotonic() - began), self._left_s() - _LEAST_S)
        ended = _wait(compiling, max(0.0, wait_s))
        if ended != "ended with 0":
            tell(COMPILE.name, ended=ended, seconds=time.monotonic() - began)

    def _run_section(self, section: Section) -> None:
        began = time.monotonic()
        ended = "no time was left"
        while (left := min(_PATIENCE * section.limit_s - (time.monotonic() - began), self._left_s())) >= _LEAST_S:
            waiting = _waiting(section.name)
            ended = _wait(self._start(section.name), left)
            if not waiting or not (after := _waiting(section.name)):
                break
            if after == waiting:  # the first of them ended the process, without a word
                tell(section.name, case=after[0], error=f"its process {ended}")
            if ended == "was over its limit":
                break
        tell(section.name, ended=ended, seconds=time.monotonic() - began)
        for shape in last_shapes(section.name):
            shutil.rmtree(MODELS / shape, ignore_errors=True)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        with (OUT / f"{name}.log").open("ab") as log:
            return subprocess.Popen([*self._command, name], stdout=log, stderr=log, start_new_session=True)

    def _left_s(self) -> float:
        return self._ends - time.monotonic()


def _waiting(section: str) -> list[str]:
    """Cases of the section without a result."""
    done = {row.get("case") for row in told()}
    return [case.name for case in cases_of(section) if case.name not in done]


def _wait(process: subprocess.Popen[bytes], limit_s: float) -> str:
    """How the process ended. What it has started ends with it."""
    try:
        code = process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return "was over its limit"
    finally:
        end(process)
    return f"ended by signal {-code}" if code < 0 else f"ended with {code}"


def end(process: subprocess.Popen[bytes]) -> None:
    """End the session of a process: compilers of ninja have process groups of their own."""
    gives_up = time.monotonic() + _KILL_S  # a driver can hold a process that hangs in it
    while (members := _session(process.pid)) and time.monotonic() < gives_up:
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
        time.sleep(0.05)
    process.poll()


def _session(leader: int) -> list[int]:
    return [pid for pid in psutil.pids() if _session_of(pid) == leader]


def _session_of(pid: int) -> int:
    """The session of a process that runs; 0 of one that has ended."""
    try:
        return 0 if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE else os.getsid(pid)
    except (psutil.NoSuchProcess, ProcessLookupError):
        return 0
