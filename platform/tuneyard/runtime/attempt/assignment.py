"""What a hub has decided about one attempt at one task, as the environment of its head pod tells it (docs/design/060)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from tuneyard.api import STOP_GRACE_S, STORED, BadInput, EnvVar, JobSpec, Task


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One attempt. `attempt` grows over the job; `run` is equal for all its attempts, and for no other job's.

    `workers`: ranks, or engines of a score task; None leaves that to the JobSpec. `scratch`: folder on every machine with room for
    what need not outlive the attempt. `promised_gb_per_s`: bandwidth between machines, where the member names one. `repair_limit_s`: how
    long a lost pod may take to be replaced in place.
    """

    task: str
    attempt: int
    run: str
    sku: str
    scratch: Path
    workers: int | None = None
    promised_gb_per_s: float | None = None
    repair_limit_s: float = 90.0
    stop_grace_s: float = STOP_GRACE_S

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Assignment:
        """Raises BadInput that names the variable which is missing or wrong."""
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
                **({"repair_limit_s": float(repair)} if repair else {}),
                **({"stop_grace_s": float(grace)} if grace else {}),
            )
        except ValueError as error:
            raise BadInput(f"a TUNEYARD_ variable is not a number: {error}", _WHO_SETS) from error

    def applied_to(self, task: Task) -> Task:
        """The task with the number of workers and the SKU that were chosen."""
        chosen = {"workers": self.workers, "instances": self.workers} if self.workers is not None else {}
        if task.training is None:
            chosen.pop("workers", None)
        if task.score is None:
            chosen.pop("instances", None)
        return task.model_copy(update={"resources": task.resources.model_copy(update={"sku": [self.sku], **chosen})})

    def applied(self, job: JobSpec) -> JobSpec:
        """The job with what was chosen in the assigned task, and in the one that it tunes."""
        own = job.spec.task(self.task)
        chosen = {own.name, job.spec.gang_of(own).name}
        tasks = [self.applied_to(task) if task.name in chosen else task for task in job.spec.tasks]
        return job.model_copy(update={"spec": job.spec.model_copy(update={"tasks": tasks})})

    def first_number(self, failures_in_place: int) -> int:
        """Number of the first start of ranks in this attempt: above all that earlier attempts can have made, each of which may
        start them again after `failures_in_place` failures. A later attempt so takes the output over at once."""
        return (self.attempt - 1) * (failures_in_place + 1) + 1


_WHO_SETS = "`tuneyard attempt` is started by a hub, which sets these variables; to run a job by hand use `tuneyard run`"


def job_of(environment: Mapping[str, str]) -> JobSpec:
    """The JobSpec in TUNEYARD_JOB. Raises BadInput, which never quotes it."""
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
    """Name -> value of the job's variables where Kubernetes has set them: under their own names, whatever the secret's key.

    Raises BadInput that names every variable which is neither there nor optional.
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
            "check that the Secrets they name exist, with those keys, in the job's namespace",
        )
    return values
