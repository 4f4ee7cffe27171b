"""Runs the measurement of a device in a separate process. The process loads torch, and frees the GPU's memory when it ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tuneyard.api import BadInput
from tuneyard.catalog.gpu_entries import PAGE, users_source

_TIMEOUT_S = 300
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def run_measurement(arguments: list[str], *, what: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """The JSON object that `catalog.measure` prints.

    A variable that hides all GPUs is removed: Ray sets it for processes without a GPU. Raises BadInput.
    """
    command = [sys.executable, "-m", "tuneyard.catalog.measure", *arguments]
    hidden = [name for name in _VISIBLE if os.environ.get(name) in ("", "-1", "NoDevFiles")]
    values = {name: value for name, value in os.environ.items() if name not in hidden} | (environment or {})
    try:
        done = subprocess.run(command, env=values, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
    except subprocess.TimeoutExpired as error:
        raise BadInput(f"measuring the peak of {what} took over {_TIMEOUT_S} s", "try again when the machine is less busy") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        by_hand = "" if arguments[0] == "cpu" else f"; or write its figures into {users_source()}: {PAGE}"
        raise BadInput(f"the peak of {what} cannot be measured: {last}", f"see what `{' '.join(command)}` prints{by_hand}") from error
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result
