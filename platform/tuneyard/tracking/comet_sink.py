"""Events of one job to Comet: online with a key, else into an archive for `comet upload`."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from tuneyard.api import Comet, JobSpec
from tuneyard.api.secrets import redact, redact_fields
from tuneyard.tracking.events import Evaluated, Event, Scored, Step, TaskEvent
from tuneyard.tracking.sink import Warnings

END_LIMIT_S = 90.0
"""How long the end of a job waits for Comet to take the last metrics, or to give up its server and write an archive."""
_METRICS = ("loss", "learning_rate", "tokens_per_s", "mfu", "memory_gb", "grad_norm", "step_s", "router_loss", "busiest_expert")


@dataclass(frozen=True)
class _End:
    status: str
    message: str


class CometSink:
    """One Comet experiment per job; metrics are named TASK/METRIC. No failure of Comet's is a failure of the job.

    Comet runs in a thread of its own: connecting to an absent server takes most of a minute.
    """

    def __init__(self, job: JobSpec, settings: Comet, folder: Path, warnings: Warnings) -> None:
        self._job = job
        self._settings = settings
        self._folder = folder
        self._warnings = warnings
        self._events: SimpleQueue[Event | _End] = SimpleQueue()
        self._thread = Thread(target=self._run, name="tuneyard-comet", daemon=True)
        self._thread.start()

    def record(self, event: Event) -> None:
        self._events.put(event)

    def close(self, status: str, message: str) -> None:
        self._events.put(_End(status, redact(message)))
        self._thread.join(END_LIMIT_S)
        if self._thread.is_alive():
            self._warnings.add("comet-slow", f"Comet did not take all metrics within {END_LIMIT_S:.0f} s; the report has them all")

    def _run(self) -> None:
        try:
            experiment = _experiment(self._settings, self._folder, self._warnings)
            experiment.set_name(self._job.metadata.name)
            experiment.add_tags([*self._settings.tags, "tuneyard", f"team:{self._job.team}"])
            experiment.log_parameters(_flat("job", redact_fields(self._job.to_yaml_dict()["spec"])))
            while not isinstance(event := self._events.get(), _End):
                _log(experiment, event)
            experiment.log_other("status", event.status)
            if event.message:
                experiment.log_other("message", event.message)
            experiment.end()
        except Exception as error:  # noqa: BLE001 -- Comet raises whatever its network and server code raises
            reason = redact(str(error) or type(error).__name__).splitlines()[0]
            self._warnings.add("comet", f"Comet gets no metrics: {reason}. The job goes on; the report has them all")


def _log(experiment: Any, event: Event) -> None:
    def metrics(values: dict[str, Any], step: int | None) -> None:
        experiment.log_metrics({f"{event.task}/{name}": value for name, value in values.items()}, step=step)

    if isinstance(event, Step):
        values = {name: value for name, value in asdict(event).items() if name in _METRICS and value is not None}
        metrics({**values, **{f"time/{name}": value for name, value in asdict(event.split).items()}}, event.step)
    elif isinstance(event, Evaluated):
        metrics({"eval_loss": event.loss, **event.figures}, event.step)
    elif isinstance(event, Scored):
        metrics({"rows": event.rows, "errors": event.errors, **event.rate}, event.rows)
    elif isinstance(event, TaskEvent):
        if event.plan:
            experiment.log_parameters(_flat(f"{event.task}/plan", redact_fields(event.plan)))
        if event.ended:
            experiment.log_other(f"{event.task}/status", event.state)
            results = _flat("result", event.result or {})
            metrics({name: value for name, value in results.items() if isinstance(value, int | float)}, None)


def _experiment(settings: Comet, folder: Path, warnings: Warnings) -> Any:
    comet = _quiet_comet()
    options: dict[str, Any] = {
        "project_name": settings.project,
        "workspace": settings.workspace,
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
    key = os.environ.get("COMET_API_KEY")
    if key:
        online = comet.Experiment(api_key=key, **options)
        if online.alive:
            return online
        warnings.add("comet-offline", f"Comet cannot be reached; metrics go to {folder}: send them with `comet upload {folder}/*.zip`")
    folder.mkdir(parents=True, exist_ok=True)
    return comet.OfflineExperiment(offline_directory=str(folder), **options)


def _quiet_comet() -> Any:
    """comet_ml, without its banners, its patches of other libraries, its hook for uncaught errors, and its reports of errors
    (anyone's, from the root logger) to its makers."""
    os.environ.setdefault("COMET_ERROR_TRACKING_ENABLE", "false")
    os.environ.setdefault("COMET_DISABLE_AUTO_LOGGING", "1")
    os.environ.setdefault("COMET_LOGGING_CONSOLE", "critical")
    hook = sys.excepthook
    import comet_ml

    sys.excepthook = hook
    for name in ("comet_ml", "comet_ml.system.gpu.devices"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return comet_ml


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    """Leaves of nested mappings by path; lists stay whole, as text."""
    if isinstance(value, dict):
        return {name: leaf for key, item in value.items() for name, leaf in _flat(f"{prefix}/{key}", item).items()}
    if isinstance(value, list | tuple):
        if all(isinstance(item, dict) and "name" in item for item in value) and value:
            return {name: leaf for item in value for name, leaf in _flat(f"{prefix}/{item['name']}", item).items()}
        return {prefix: str(value)}
    return {prefix: value}
