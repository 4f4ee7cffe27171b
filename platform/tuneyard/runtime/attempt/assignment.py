"""Reads the assignment of an attempt, the hub's decisions about it, from the environment of its head pod (docs/design/060)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError

from tuneyard.api import STOP_GRACE_S, STORED, BadInput, EnvVar, JobSpec, Task


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One attempt. `attempt`: its number, which grows over the job. `run`: the same for all attempts of a job, and different for other
    jobs.

    `workers`: number of ranks, over all gangs of a search, or of engines of a score task; None: as in the JobSpec. `scratch`: folder on
    every machine for temporary files of the attempt. `promised_gb_per_s`: bandwidth between machines, if the member names one.
    `repair_limit_s`: most seconds until a lost pod is replaced in place. `price_per_gpu_hour`: of the SKU there; 0: unknown.
    """

    task: str
    attempt: int
    run: str
    sku: str
    scratch: Path
    workers: int | None = None
    promised_gb_per_s: float | None = None
    price_per_gpu_hour: float = 0.0
    repair_limit_s: float = 90.0
    stop_grace_s: float = STOP_GRACE_S

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Assignment:
        """The assignment in `environment`. Raises BadInput that names a missing or wrong variable."""
        workers, promised = environment.get("TUNEYARD_WORKERS"), environment.get("TUNEYARD_PREFLIGHT_GB_PER_S")
        repair, grace = environment.get("TUNEYARD_REPAIR_LIMIT_S"), environment.get("TUNEYARD_STOP_GRACE_S")
        try:
            return cls(
                task=_needed(environment, "TUNEYARD_TASK"),
                attempt=int(_needed(environment, "TUNEYARD_ATTEMPT")),
                run=environment.get("TUNEYARD_RUN") or uuid.uuid4().hex,
                sku=_needed(environment, "TUNEYARD_SKU"),
                scratch=Path(_needed(environment, "TUNEYARD_SCRATCH")),
                workers=int(workers) if workers else None,
                promised_gb_per_s=float(promised) if promised else None,
                price_per_gpu_hour=float(environment.get("TUNEYARD_PRICE_PER_GPU_HOUR") or 0.0),
                **({"repair_limit_s": float(repair)} if repair else {}),
                **({"stop_grace_s": float(grace)} if grace else {}),
            )
        except ValueError as error:
            raise BadInput(f"a TUNEYARD_ variable is not a number: {error}", _WHO_SETS) from error

    def applied_to(self, task: Task) -> Task:
        """The task with the assigned number of workers and SKU."""
        chosen = {"workers": self.workers, "instances": self.workers} if self.workers is not None else {}
        if task.training is None:
            chosen.pop("workers", None)
        if task.score is None or task.endpoint is not None:  # an endpoint is placed on no GPU, whatever its instances
            chosen.pop("instances", None)
        return task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [self.sku], **chosen})})

    def applied(self, job: JobSpec) -> JobSpec:
        """The job with the assigned workers and SKU in the assigned task, and in the task that it tunes. Several gangs of a search keep the
        size that the JobSpec names: the assigned workers are divided among them."""
        own = job.spec.task(self.task)
        chosen = {own.name, job.spec.gang_of(own).name}
        divided = own.tune is not None and own.tune.budget.at_once > 1
        assignment = replace(self, workers=None) if divided else self
        tasks = [assignment.applied_to(task) if task.name in chosen else task for task in job.spec.tasks]
        return job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": tasks})})

    def first_number(self, failures_in_place: int) -> int:
        """Number of the first start of ranks in this attempt: higher than any start of an earlier attempt, so that this attempt takes over
        the output at once. An attempt starts ranks once, and again after each of at most `failures_in_place` failures."""
        return (self.attempt - 1) * (failures_in_place + 1) + 1


_WHO_SETS = "`tuneyard attempt` is started by a hub, which sets these variables; to run a job by hand use `tuneyard run`"


def job_of(environment: Mapping[str, str]) -> JobSpec:
    """The JobSpec in TUNEYARD_JOB. Raises BadInput, whose message never quotes the JobSpec."""
    try:
        return JobSpec.model_validate(json.loads(_needed(environment, "TUNEYARD_JOB")), context=STORED)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(
            f"the JobSpec in TUNEYARD_JOB cannot be read: {where}: {first['msg']}", "use the same version of Tuneyard on hub and members"
        ) from error
    except ValueError as error:
        raise BadInput("TUNEYARD_JOB is not JSON", _WHO_SETS) from error


def _needed(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise BadInput(f"the environment variable {name} is missing", _WHO_SETS)
    return value


def pod_environment(variables: list[EnvVar], environment: Mapping[str, str]) -> dict[str, str]:
    """Name -> value of the job's variables in a pod. Kubernetes sets them under their own names, not under the keys of their Secrets.

    Raises BadInput that names every missing variable, unless it is optional.
    """
    values: dict[str, str] = {}
    missing: list[str] = []
    for variable in variables:
        if variable.name in environment:
            values[variable.name] = environment[variable.name]
        elif variable.value_from is None:
            values[variable.name] = variable.value or ""
        elif not variable.value_from.secret_key_ref.optional:
            missing.append(variable.name)
    if missing:
        raise BadInput(
            f"the pod lacks variables of spec.env: {', '.join(missing)}",
            "check that their Secrets exist in the job's namespace, with the keys that spec.env names",
        )
    return values
