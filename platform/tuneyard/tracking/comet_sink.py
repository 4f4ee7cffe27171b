"""Events of one job to Comet: online where there is a key, else into an archive that `comet upload` takes later."""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from typing import Any

from tuneyard.api import Comet, JobSpec
from tuneyard.api.secrets import redact, redact_fields
from tuneyard.tracking.events import Evaluated, Event, Scored, Step, TaskEvent
from tuneyard.tracking.sink import Warnings

END_LIMIT_S = 60.0
"""How long the end of a job waits for Comet to take the last metrics."""
_METRICS = ("loss", "learning_rate", "tokens_per_s", "mfu", "memory_gb", "grad_norm", "step_s")


class CometSink:
    """One Comet experiment per job; metrics are named TASK/METRIC. No failure of Comet's is a failure of the job."""

    def __init__(self, job: JobSpec, settings: Comet, folder: Path, warnings: Warnings) -> None:
        self._warnings = warnings
        self._folder = folder
        self._experiment: Any = None
        try:
            self._experiment = _experiment(settings, folder, warnings)
            self._experiment.set_name(job.metadata.name)
            self._experiment.add_tags([*settings.tags, "tuneyard", f"team:{job.team}"])
            self._experiment.log_parameters(_flat("job", redact_fields(job.to_yaml_dict()["spec"])))
        except Exception as error:  # noqa: BLE001 -- Comet raises whatever its network and server code raises
            self._gone(error)

    def record(self, event: Event) -> None:
        if self._experiment is None:
            return
        try:
            self._log(event)
        except Exception as error:  # noqa: BLE001 -- as above
            self._gone(error)

    def _log(self, event: Event) -> None:
        if isinstance(event, Step):
            values = {name: value for name, value in asdict(event).items() if name in _METRICS and value is not None}
            self._metrics(event.task, {**values, **{f"time/{name}": value for name, value in asdict(event.split).items()}}, event.step)
        elif isinstance(event, Evaluated):
            self._metrics(event.task, {"eval_loss": event.loss}, event.step)
        elif isinstance(event, Scored):
            values = {"rows": event.rows, "errors": event.errors, "output_tokens_per_s": event.output_tokens_per_s}
            self._metrics(event.task, values, event.rows)
        elif isinstance(event, TaskEvent):
            if event.plan:
                self._experiment.log_parameters(_flat(f"{event.task}/plan", redact_fields(event.plan)))
            if event.ended:
                self._experiment.log_other(f"{event.task}/status", event.state)
                numbers = _flat("result", event.result or {})
                self._metrics(event.task, {name: value for name, value in numbers.items() if isinstance(value, int | float)}, None)

    def _metrics(self, task: str, values: dict[str, Any], step: int | None) -> None:
        self._experiment.log_metrics({f"{task}/{name}": value for name, value in values.items()}, step=step)

    def close(self, status: str, message: str) -> None:
        if self._experiment is None:
            return
        experiment, self._experiment = self._experiment, None

        def end() -> None:
            try:
                experiment.log_other("status", status)
                if message:
                    experiment.log_other("message", redact(message))
                experiment.end()
            except Exception as error:  # noqa: BLE001 -- as above
                self._gone(error)

        # end() waits for Comet's server: not for ever.
        ending = Thread(target=end, name="tuneyard-comet", daemon=True)
        ending.start()
        ending.join(END_LIMIT_S)
        if ending.is_alive():
            self._warnings.add("comet-slow", f"Comet did not take all metrics within {END_LIMIT_S:.0f} s; the report has them all")

    @property
    def archives(self) -> list[Path]:
        """Offline archives that were written; `comet upload FILE` sends them."""
        return sorted(self._folder.glob("*.zip"))

    def _gone(self, error: Exception) -> None:
        self._experiment = None
        reason = redact(str(error) or type(error).__name__).splitlines()[0]
        self._warnings.add("comet", f"Comet gets no metrics: {reason}. The job goes on; the report has them all")


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
    """comet_ml, without its banners, its patches of other libraries and its hook for uncaught errors."""
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
