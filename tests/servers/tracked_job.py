"""A job with trackers, told to a recorder in a process of its own: clients patch and keep state that tests must not share.

The process is a fork of one that has loaded this package, and no client: loading takes longer than to tell the job.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tuneyard.warm import WarmServer, shim_command

ROOT = Path(__file__).parents[2]

STEPS = 120
SECRET = "a-key-of-some-length-of-forty-characters-x"
NAMES = {
    "train/loss",
    "train/learning_rate",
    "train/tokens_per_s",
    "train/mfu",
    "train/memory_gb",
    "train/grad_norm",
    "train/step_s",
    "train/eval_loss",
    "train/time/forward_s",
    "train/result/mfu",
    "judge/rows",
    "judge/output_tokens_per_s",
    "judge/result/metrics/rouge_l",
    "judge/result/latency_s/p50",
}
"""Some of the names that every tracker gets."""
PREFIXES = ("COMET_", "WANDB_", "MLFLOW_")


def run_tracked(folder: Path, tracking: dict[str, Any], **environment: str) -> list[str]:
    """Lines that a job with trackers prints, on both streams, without the time that its end took."""
    done = run_forked(__file__, str(folder), json.dumps(tracking), **environment)
    print(done.stdout, done.stderr)
    return [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("closed in ")]


def run_forked(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, in which `tuneyard.tracking` is loaded."""
    command = [*shlex.split(shim_command(_server().socket)), script, *words]
    return subprocess.run(command, env={**_environment(), **environment}, capture_output=True, text=True, timeout=300, check=False)


@functools.cache
def _server() -> WarmServer:
    log = Path(tempfile.mkdtemp(prefix="tuneyard-tracked-")) / "server.log"
    server = WarmServer(["tests.builders.reports"], environment=_environment(), log=log)
    atexit.register(server.close)
    return server


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    return {**kept, "TUNEYARD_HISTORY": "off", "PYTHONPATH": str(ROOT)}


def tell_job(folder: Path, tracking: dict[str, Any]) -> None:
    """Tell the job to a recorder, and print its warnings and its end."""
    from tests.builders.reports import make_job, score_events, tell, train_events, train_result

    from tuneyard.tracking import TaskEvent, open_recorder

    os.environ["HOME"] = str(folder)
    hooks = sys.excepthook, sys.exit
    job = make_job(tracking=tracking, env=[{"name": "API_TOKEN", "value": "written-value"}])
    recorder = open_recorder(job, output="out", folder=folder, warn=lambda event: print("warned:", event.message))
    tell(recorder, train_events())
    recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
    tell(recorder, score_events("judge", {"exact_match": 0.447, "rouge_l": 0.521}))
    began = time.monotonic()
    print(recorder.close("succeeded", "ended as told").status)
    print(f"closed in {time.monotonic() - began:.1f} s", file=sys.stderr)
    assert (sys.excepthook, sys.exit) == hooks


if __name__ == "__main__":
    tell_job(Path(sys.argv[1]), json.loads(sys.argv[2]))
