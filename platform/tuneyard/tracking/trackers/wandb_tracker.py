"""Weights & Biases: one run per job, online with a key, else a folder for `wandb sync`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuneyard.api import Wandb
from tuneyard.api.errors import said_by
from tuneyard.tracking.trackers.tracker import TrackedRun, TrackerKind

INIT_LIMIT_S = 30.0
FINISH_LIMIT_S = 60.0
_QUIET: Mapping[str, Any] = {
    "silent": True,
    "console": "off",
    "symlink": False,
    "save_code": False,
    "disable_code": True,
    "disable_git": True,
    "disable_job_creation": True,
    # Facts about the host, its command lines and packages.
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
}


class WandbTracker:
    """A run of Weights & Biases. Its own step would have to grow over all tasks, so each task has an axis of its own."""

    def __init__(self, run: Any, tracked: TrackedRun) -> None:
        self._run = run
        self._tracked = tracked
        self._axes: set[str] = set()

    def parameters(self, values: Mapping[str, Any]) -> None:
        self._run.config.update(dict(values), allow_val_change=True)

    def metrics(self, values: Mapping[str, float], *, axis: str, step: int | None) -> None:
        if step is None:
            self._run.summary.update(dict(values))
            return
        for name in values.keys() - self._axes:
            self._run.define_metric(name, step_metric=axis)
            self._axes.add(name)
        self._run.log({**values, axis: step})

    def note(self, name: str, text: str) -> None:
        self._run.summary[name] = text

    def flush(self) -> None:
        """The client sends from a process of its own."""

    def end(self, status: str) -> None:
        self._run.summary["status"] = status
        try:
            self._run.finish(exit_code=0 if status == "succeeded" else 1)
        except TimeoutError:
            folder = Path(self._run.dir).parent
            self._tracked.warn(f"Weights & Biases has not taken all metrics; send them with `wandb sync {folder}`")


def _open(settings: Wandb, run: TrackedRun) -> WandbTracker:
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    os.environ.setdefault("WANDB_SILENT", "true")  # the setting is read after the first lines
    import wandb

    logging.getLogger("wandb").setLevel(logging.CRITICAL)
    run.folder.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {
        "project": settings.project,
        "entity": settings.entity,
        "name": run.job,
        "tags": [*settings.tags, "tuneyard", f"team:{run.team}"[:64]],
        "dir": str(run.folder.parent),  # wandb adds a folder `wandb`
        "settings": wandb.Settings(**_QUIET, **_limits()),
    }
    with _hooks_kept():
        if _has_key():
            try:
                return WandbTracker(wandb.init(mode="online", **options), run)
            except wandb.Error as error:
                reason = said_by(error)
                run.warn(f"Weights & Biases cannot be used: {reason}; metrics go to {run.folder}: `wandb sync {run.folder}/offline-run-*`")
        return WandbTracker(wandb.init(mode="offline", **options), run)


def _limits() -> dict[str, Any]:
    """How long wandb waits for its server: its own variables win."""
    return {
        "init_timeout": float(os.environ.get("WANDB_INIT_TIMEOUT", INIT_LIMIT_S)),
        "finish_timeout": float(os.environ.get("WANDB_FINISH_TIMEOUT", FINISH_LIMIT_S)),
        "finish_timeout_raises": True,
    }


@contextmanager
def _hooks_kept() -> Iterator[None]:
    """wandb replaces the interpreter's hooks for exits and uncaught errors, to upload them."""
    hooks = sys.excepthook, sys.exit
    try:
        yield
    finally:
        sys.excepthook, sys.exit = hooks


def _has_key() -> bool:
    """Whether the environment, or `wandb login` on this machine, has given a key for the server."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    from netrc import NetrcParseError, netrc
    from urllib.parse import urlsplit

    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).netloc
    try:
        return netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, NetrcParseError):
        return False


KIND = TrackerKind(title="Weights & Biases", extra="wandb", open=_open)
