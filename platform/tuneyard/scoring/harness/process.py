"""The driver's side of the process of lm-evaluation-harness (see `program`)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, JobFailed, LmEval
from tuneyard.storage import Store

LOG = "lm-eval.log"
_MOST_OF_LOG = 1 << 20
_LAST_LINES = 5


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the process works on. Paths are of this machine. `tokenizer`, `model`: folders; empty where only names are checked."""

    tasks: list[str]
    folder: str | None
    fewshot: int | None
    limit: int | None
    chat: bool
    tokenizer: str = ""
    model: str = ""
    trust_remote_code: bool = False
    max_length: int = 0
    requests: str = ""
    """The file of requests."""
    answers: str = ""
    """The file of the engines' answers."""

    @classmethod
    def of(cls, harness: LmEval, folder: Path | None, **more: Any) -> Order:
        """`folder`: that of `data.lmEval.folder` on this machine."""
        asked = {name: getattr(harness, name) for name in ("tasks", "fewshot", "limit", "chat")}
        return cls(**asked, folder=None if folder is None else str(folder), **more)


def run_harness(do: str, order: Order, scratch: Path, keep: Store | None = None) -> dict[str, Any]:
    """Run `program` for `do`: build, measure or names. Returns its result.

    Paths in YAML files of own tasks start at their folder, in which the process runs.
    Raises BadInput with its refusal, JobFailed where it ends without one. `keep`: where its log goes then.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    log, result, written = scratch / f"{do}.log", scratch / f"{do}.result.json", scratch / f"{do}.order.json"
    result.unlink(missing_ok=True)
    written.write_text(json.dumps({**asdict(order), "do": do, "result": str(result)}))
    command = [sys.executable, "-P", "-m", "tuneyard.scoring.harness.program", str(written)]
    path = os.pathsep.join(each for each in sys.path if each)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=order.folder or scratch,
            env={**os.environ, "PYTHONPATH": path, "TOKENIZERS_PARALLELISM": "false"},
        )
        try:
            code = process.wait()
        finally:
            end(process)
    if code != 0 or not result.exists():
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        raise JobFailed(
            f"the process of lm-evaluation-harness ended ({how}): {_last_lines(log)}{_kept(log, keep)}",
            "correct the cause; where memory is short, name fewer tasks in one score task",
        )
    found: dict[str, Any] = json.loads(result.read_text())
    if "refused" in found:
        cause, next_step = found["refused"]
        raise BadInput(f"{cause}{_kept(log, keep)}", next_step)
    return found


def _kept(log: Path, keep: Store | None) -> str:
    """Keep the log of a process that has failed. Returns where it is."""
    if keep is None:
        return ""
    keep.put(LOG, log.read_bytes()[-_MOST_OF_LOG:])
    return f" (its log: {keep.url(LOG)})"


def end(process: subprocess.Popen[bytes]) -> None:
    """End the process, and what code of its tasks has started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _last_lines(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-_LAST_LINES:])[-1000:]
