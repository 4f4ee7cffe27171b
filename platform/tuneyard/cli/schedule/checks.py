"""Checks of a Schedule: its expressions, and the job of its next run under the same rules as any job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from pydantic import ValidationError

from tuneyard.admission import Anywhere, admit
from tuneyard.api import Device, Document, JobSpec, Schedule
from tuneyard.api.loading_reasons import explain
from tuneyard.schedules import BadExpression, Moment, expression_problems, next_after, run_name, run_spec
from tuneyard.schedules.rendering import rendered
from tuneyard.schedules.requests import why_refused

_JOB = ("spec", "template", "spec")


def complaints_about(document: Document, schedule: Schedule, devices: Mapping[str, Device]) -> Iterator[str]:
    """All complaints about a Schedule that its models do not have, one line each."""
    spec = document.value["spec"]
    wrong = list(expression_problems({"template": spec["template"], "waitFor": spec.get("waitFor")}, ("spec",)))
    for path, reason in wrong:
        yield document.complaint(path, reason)
    now = datetime.now(UTC)
    request = schedule.spec.backfill
    if request is not None and (why := why_refused(schedule.spec.cron, schedule.spec.time_zone, request, now)):
        yield document.complaint(("spec", "backfill"), why)
    if not wrong:
        yield from _about_run(document, schedule, now, devices)


def _about_run(document: Document, schedule: Schedule, now: datetime, devices: Mapping[str, Device]) -> Iterator[str]:
    """Complaints about the job of the next run."""
    goal, name = schedule.spec, schedule.metadata.name
    due = next_after(goal.cron, goal.time_zone, now)
    moment = Moment(run_name(name, due), due, goal.time_zone)
    try:
        spec = run_spec(document.value["spec"]["template"]["spec"], moment)
        rendered(document.value["spec"].get("waitFor") or {}, moment)
        metadata = {"name": moment.name, "namespace": schedule.metadata.namespace}
        value = {"metadata": metadata, "spec": {key: inner for key, inner in spec.items() if key != "template"}}
        job = JobSpec.model_validate(value)
    except BadExpression as error:
        yield document.complaint(("spec", "template"), f"the run of {due:%Y-%m-%d %H:%M} UTC: {error}")
        return
    except ValidationError as error:
        for path, reason in explain(error, JobSpec, value):
            yield document.complaint((*_JOB, *path[1:]), f"in the run of {due:%Y-%m-%d %H:%M} UTC: {reason}")
        return
    for refusal in admit(job, Anywhere(), devices=devices):
        yield document.complaint((*_JOB, *refusal.path[1:]), refusal.words)
