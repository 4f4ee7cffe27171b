"""The JobSpecs of Schedules: as runs for the decision, and as objects to create."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, cast, get_args

from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import RunKind
from tuneyard.federation import SCHEDULE_LABEL
from tuneyard.schedules import LastGood, Moment, Run, Start, due_of, figures_of, rendered, run_spec, why_not_compared
from tuneyard_operators.hub.clock import at, written
from tuneyard_operators.hub.jobspecs import JobSpecs
from tuneyard_operators.kube import SCHEDULE, Key

LABEL = SCHEDULE_LABEL
KIND_LABEL = "tuneyard.dev/run"
DUE = "tuneyard.dev/due"
Object = dict[str, Any]


def runs_by_schedule(jobs: JobSpecs) -> Mapping[Key, list[Key]]:
    """Keys of the JobSpecs of each Schedule."""
    found: defaultdict[Key, list[Key]] = defaultdict(list)
    for key, job in jobs.items.items():
        schedule = (job["metadata"].get("labels") or {}).get(LABEL)
        if schedule:
            found[key[0], schedule].append(key)
    return found


def is_owned(jobs: JobSpecs, key: Key, schedule_uid: str) -> bool:
    """Whether a JobSpec exists and was created by this Schedule. Its label alone is what anybody may write."""
    owners = jobs.items[key]["metadata"].get("ownerReferences") or [] if key in jobs.items else []
    return any(owner.get("uid") == schedule_uid for owner in owners)


def run_of(jobs: JobSpecs, key: Key, goal: ScheduleGoal) -> Run:
    """The run of a JobSpec, as its status says."""
    metadata, status = jobs.items[key]["metadata"], jobs.status(key)
    kind = (metadata.get("labels") or {}).get(KIND_LABEL)
    against = LastGood.of(metadata.get("annotations") or {})
    tasks = {task.name: task.metrics for task in status.tasks} if status.phase.final else {}
    return Run(
        name=key[1],
        created=at(metadata["creationTimestamp"]),
        phase=status.phase,
        due=_due(metadata),
        kind=cast(RunKind, kind) if kind in get_args(RunKind) else "scheduled",
        figures=figures_of(tasks, [*goal.regression]),
        finished=status.finished_at,
        message=status.message if status.phase.final else "",
        output=status.output,
        rows_compared_with=against.run if against is not None else "",
        rows_not_compared=why_not_compared(tasks),
    )


def _due(metadata: Mapping[str, Any]) -> Any:
    text = (metadata.get("annotations") or {}).get(DUE, "")
    try:
        return at(text)
    except ValueError:
        return due_of(metadata["name"])


def jobspec_of(item: Mapping[str, Any], goal: ScheduleGoal, start: Start, against: LastGood | None = None) -> Object:
    """The JobSpec of a run of a Schedule object, which owns it. `against`: the run whose rows it compares. Raises BadExpression."""
    metadata, template = item["metadata"], item["spec"]["template"]
    moment = Moment(start.name, start.due, goal.time_zone)
    owner = {
        "apiVersion": SCHEDULE.api_version,
        "kind": SCHEDULE.name,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    return {
        "metadata": {
            "name": start.name,
            "namespace": metadata["namespace"],
            "labels": {**rendered(template.get("labels") or {}, moment), LABEL: metadata["name"], KIND_LABEL: start.kind},
            "annotations": {DUE: written(start.due), **(against.annotations if against is not None else {})},
            "ownerReferences": [owner],
        },
        "spec": run_spec(template["spec"], moment),
    }
