"""Comet: one experiment per job, online with a key, else an archive for `comet upload`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuneyard.api import Comet
from tuneyard.tracking.trackers.tracker import TrackedRun, TrackerKind

_OPTIONS: Mapping[str, Any] = {
    "display_summary_level": 0,
    "log_code": False,
    "log_graph": False,
    "log_git_metadata": False,
    "log_git_patch": False,
    # Hosts' environments hold secrets, and command lines too.
    "log_env_details": False,
    "parse_args": False,
    "auto_param_logging": False,
    "auto_metric_logging": False,
    "auto_output_logging": False,
}


class CometTracker:
    """A Comet experiment."""

    def __init__(self, experiment: Any, run: TrackedRun, *, online: bool) -> None:
        self._experiment = experiment
        self._run = run
        self._online = online
        self._archives = _archives(run)

    def parameters(self, values: Mapping[str, Any]) -> None:
        self._experiment.log_parameters(dict(values))

    def metrics(self, values: Mapping[str, float], *, axis: str, step: int | None) -> None:  # noqa: ARG002 -- Comet has an axis per metric
        self._experiment.log_metrics(dict(values), step=step)

    def note(self, name: str, text: str) -> None:
        self._experiment.log_other(name, text)

    def flush(self) -> None:
        """Comet sends from a thread of its own."""

    def end(self, status: str) -> None:
        """An experiment that has lost its server writes an archive then."""
        self._experiment.log_other("status", status)
        self._experiment.end()
        lost = [archive for archive in _archives(self._run) if archive not in self._archives]
        if self._online and lost:
            self._run.warn(f"Comet's server was lost; send the metrics with `comet upload --force-reupload {lost[0]}`")


def _archives(run: TrackedRun) -> list[Path]:
    return sorted(run.folder.glob("*.zip"))


def _open(settings: Comet, run: TrackedRun) -> CometTracker:
    experiment, online = _experiment(settings, run)
    experiment.set_name(run.job)
    experiment.add_tags([*settings.tags, "tuneyard", f"team:{run.team}"])
    return CometTracker(experiment, run, online=online)


def _experiment(settings: Comet, run: TrackedRun) -> tuple[Any, bool]:
    """An experiment, and whether it is online."""
    # An experiment that loses its server writes its archive there.
    os.environ.setdefault("COMET_OFFLINE_DIRECTORY", str(run.folder))
    comet = _quiet_comet()
    options = {**_OPTIONS, "project_name": settings.project, "workspace": settings.workspace}
    key = os.environ.get("COMET_API_KEY")
    if key:
        online = comet.Experiment(api_key=key, **options)
        if online.alive:
            logging.getLogger("comet_ml").addHandler(_Losses(run))
            return online, True
        run.warn(f"Comet does not answer, or refuses the key; metrics go to {run.folder}: send them with `comet upload {run.folder}/*.zip`")
    run.folder.mkdir(parents=True, exist_ok=True)
    return comet.OfflineExperiment(offline_directory=str(run.folder), **options), False


def _quiet_comet() -> Any:
    """comet_ml, without its banners, its patches of other libraries, its hook for uncaught errors, and its reports of errors
    (anyone's, from the root logger) to its makers."""
    os.environ.setdefault("COMET_ERROR_TRACKING_ENABLE", "false")
    os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
    os.environ.setdefault("COMET_LOGGING_CONSOLE", "critical")
    hook = sys.excepthook
    import comet_ml

    sys.excepthook = hook
    logger = logging.getLogger("comet_ml")
    logger.setLevel(logging.ERROR)
    logger.propagate = False
    logger.handlers[:] = [logging.NullHandler()]  # without a handler, records would be printed
    logging.getLogger("comet_ml.system.gpu.devices").setLevel(logging.CRITICAL)
    return comet_ml


class _Losses(logging.Handler):
    """What an online experiment could not send: Comet tells its logger alone."""

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(logging.ERROR)
        self._run = run

    def emit(self, record: logging.LogRecord) -> None:
        self._run.warn(f"Comet misses metrics: {record.getMessage().strip().splitlines()[0]}; the report has them all")


KIND = TrackerKind(title="Comet", extra="comet", open=_open)
