"""A job with trackers, told to a recorder in a process of its own: clients patch and keep state that tests must not share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAM = """
import json, sys, time
from pathlib import Path
from tests.builders.reports import make_job, score_events, tell, train_events, train_result
from tuneyard.tracking import TaskEvent, open_recorder

hooks = sys.excepthook, sys.exit
folder, tracking = Path(sys.argv[1]), json.loads(sys.argv[2])
job = make_job(tracking=tracking, env=[{"name": "API_TOKEN", "value": "written-value"}])
recorder = open_recorder(job, output="out", folder=folder, warn=lambda event: print("warned:", event.message))
tell(recorder, train_events())
recorder(TaskEvent(task="train", state="succeeded", kind="train", result=train_result()))
tell(recorder, score_events("judge", {"exact_match": 0.447, "rouge_l": 0.521}))
began = time.monotonic()
print(recorder.close("succeeded", "ended as told").status)
print(f"closed in {time.monotonic() - began:.1f} s", file=sys.stderr)
assert (sys.excepthook, sys.exit) == hooks
"""
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
    kept = {name: value for name, value in os.environ.items() if not name.startswith(PREFIXES)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), json.dumps(tracking)],
        env={**kept, "TUNEYARD_HISTORY": "off", "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    print(done.stdout, done.stderr)
    return [line for line in (done.stdout + done.stderr).splitlines() if line and not line.startswith("closed in ")]
