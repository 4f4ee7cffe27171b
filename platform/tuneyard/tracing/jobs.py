"""The trace of a hub's job, from its JobSpec and status alone. Pure: the same object gives the same spans on every hub.

job                                 from `tuneyard submit` or `kubectl apply` to the end
├─ submit                           shipping of files, and the requests of the client
└─ task NAME                        from when nothing it depends on is left, to its last attempt
   ├─ queue                         until the next placement; the scheduler's reasons as events
   └─ attempt N                     linked to the attempt before it
      ├─ create RayJob, schedule pods, pull images and start containers, start Ray
      └─ its own stages: load the model, first step, training with its checkpoints, …
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from tuneyard.api import Attempt, JobStatus, Phase
from tuneyard.api.moments import moment_of
from tuneyard.api.status import TaskStatus
from tuneyard.api.tasks import TASK_KINDS
from tuneyard.tracing.spans import Context, Mark, Span, SpanEvent, Value, bounded, cut, id_of, told, trace_id_of
from tuneyard.tracing.stages import stage_spans

TRACEPARENT = "tuneyard.dev/traceparent"
"""Annotation of a JobSpec: the span that its trace is a part of, such as a pipeline's step (W3C Trace Context)."""
SUBMITTED = "tuneyard.dev/submitted"
"""Annotation of a JobSpec: when `tuneyard submit` began, by the clock of its machine."""
_SCHEDULE, _DUE, _USER = "tuneyard.dev/schedule", "tuneyard.dev/due", "tuneyard.dev/user"
_LONGEST_SUBMIT = timedelta(days=1)
"""A submission that seems to have taken longer is a wrong clock."""
Object = Mapping[str, Any]


@dataclass(frozen=True)
class _Job:
    metadata: Object
    status: JobStatus
    needs: Mapping[str, Sequence[str]]

    @property
    def created(self) -> datetime:
        return moment_of(self.metadata["creationTimestamp"])

    @property
    def ended(self) -> datetime | None:
        """When the job, or its deletion, and all its attempts had ended: attempts that are stopped outlive a failed job for a moment."""
        over = self.status.finished_at if self.status.phase.final else self.metadata.get("deletionTimestamp")
        if not is_over(self.metadata, self.status):
            return None
        return max(filter(None, [_moment(over), *(_moment(attempt.ended_at) for attempt in self.status.attempts)]), default=self.created)


def is_over(metadata: Object, status: JobStatus) -> bool:
    """Whether nothing of a job goes on: it has ended or is deleted, and so have all its attempts."""
    ends = status.phase.final or metadata.get("deletionTimestamp") is not None
    return ends and all(_moment(attempt.ended_at) is not None for attempt in status.attempts)


def context_of(metadata: Object) -> Context:
    """The root span of a job. `metadata`: of its JobSpec."""
    uid = str(metadata["uid"])
    outer = _outer(metadata)
    trace_id = outer.trace_id if outer is not None else trace_id_of(uid)
    return Context(trace_id=trace_id, span_id=id_of(uid, "job"), sampled=outer.sampled if outer is not None else True)


def attempt_context(metadata: Object, task: str, number: int, *copy: int) -> Context:
    """The span of an attempt, for programs in its pods: their `TRACEPARENT`.

    `copy`: given where attempts of a status written wrongly have one number; how many of them come before.
    """
    root = context_of(metadata)
    return replace(root, span_id=id_of(str(metadata["uid"]), "attempt", task, number, *copy))


def job_spans(item: Object, status: JobStatus) -> list[Span]:
    """All spans of a job; spans without an end go on. `item`: the JobSpec object, at least with its metadata and the names of its tasks."""
    job = _Job(item["metadata"], status, _needs(item.get("spec")))
    root = _root(job)
    spans = [root]
    submitted = _submitted(job)
    if submitted is not None:
        spans.append(root.child("submit", submitted, job.created))
    for task in status.tasks:
        spans += _task(job, root, task)
    return spans


def _root(job: _Job) -> Span:
    status, metadata = job.status, job.metadata
    annotations, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    outer = _outer(metadata)
    ended = job.ended
    return Span(
        name="job",
        context=context_of(metadata),
        parent_id=outer.span_id if outer is not None else None,
        start=min(_submitted(job) or job.created, job.created),
        end=max(ended, job.created) if ended is not None else None,
        attributes=told(
            {
                "tuneyard.job.name": str(metadata.get("name", "")),
                "tuneyard.job.uid": str(metadata["uid"]),
                "k8s.namespace.name": str(metadata.get("namespace", "")),
                "enduser.id": str(annotations.get(_USER, "")),
                "tuneyard.schedule": str(labels.get(_SCHEDULE, "")),
                "tuneyard.schedule.due": str(annotations.get(_DUE, "")),
                "tuneyard.job.phase": str(status.phase) if ended is not None else None,
                "tuneyard.job.attempts": len(status.attempts) if ended is not None else None,
                "tuneyard.usage.gpu_hours": round(status.usage.gpu_hours, 4) if ended is not None else None,
            }
        ),
        error=bounded(status.message or "failed") if status.phase is Phase.FAILED else "",
    )


def _task(job: _Job, root: Span, task: TaskStatus) -> Iterator[Span]:
    attempts = [each for each in job.status.attempts if each.task == task.name]
    ready = _ready(job, task.name)
    if ready is None and not attempts:
        return
    start = min(filter(None, [ready, *(_moment(each.placed_at) for each in attempts[:1])]), default=job.created)
    last = attempts[-1] if attempts else None
    ends = [_moment(each.ended_at) for each in attempts]
    done = task.phase is Phase.SUCCEEDED and bool(ends) and all(ends)
    over = done or job.ended is not None
    span = root.child(
        f"task {cut(task.name)}",
        start,
        max(filter(None, ends)) if done else job.ended,
        attributes=told({"tuneyard.task.name": task.name, "tuneyard.task.phase": str(task.phase) if over else None}),
        error=bounded(task.message or (last.message if last is not None else "") or "failed") if task.phase is Phase.FAILED else "",
    )
    yield span
    free: datetime = span.start
    before: Context | None = None
    met: Counter[int] = Counter()
    for attempt in attempts:
        copy = (met[attempt.number],) if met[attempt.number] else ()
        met[attempt.number] += 1
        yield from _queue(span, task, free, _moment(attempt.placed_at) or free, attempt.number, *copy)
        context = attempt_context(job.metadata, task.name, attempt.number, *copy)
        yield from _attempt(span, attempt, context, before)
        before, free = context, _moment(attempt.woken_at or attempt.ended_at) or free
    waits = last is None or (last.ended_at is not None and last.phase is not Phase.SUCCEEDED and not last.sleeps)
    if waits and task.phase is not Phase.SUCCEEDED:
        yield from _queue(span, task, free, span.end, "next")


def _ready(job: _Job, task: str) -> datetime | None:
    """When everything that a task needs was done; None: not yet."""
    moments = [job.created]
    for needed in job.needs.get(task, ()):
        done = [each for each in job.status.attempts if each.task == needed and each.phase is Phase.SUCCEEDED]
        ended = _moment(done[-1].ended_at) if done else None
        if ended is None:
            return None
        moments.append(ended)
    return max(moments)


def _queue(task: Span, status: TaskStatus, start: datetime, end: datetime | None, *key: object) -> Iterator[Span]:
    if end is not None and end <= start:
        return
    waits = [each for each in status.waits if start <= moment_of(each.at) and (end is None or moment_of(each.at) <= end)]
    events = tuple(SpanEvent("waits", moment_of(each.at), {"tuneyard.reason": bounded(each.reason)}) for each in waits)
    yield task.child("queue", start, end, *key, events=events)


def _attempt(task: Span, attempt: Attempt, context: Context, before: Context | None) -> Iterator[Span]:
    ended = _moment(attempt.ended_at)
    place = attempt.placement
    failed = attempt.phase is Phase.FAILED
    stopped = attempt.phase in (Phase.PREEMPTED, Phase.CANCELLED)
    outcome: dict[str, Value] = {"tuneyard.attempt.phase": str(attempt.phase), "tuneyard.attempt.last_step": attempt.last_step}
    known: dict[str, Value | None] = {
        "tuneyard.task.name": attempt.task,
        "tuneyard.attempt.number": attempt.number,
        "k8s.cluster.name": place.cluster if place is not None else None,
        "tuneyard.sku": place.sku if place is not None else None,
        "tuneyard.workers": place.workers if place is not None else None,
        "tuneyard.gpus": place.gpus if place is not None else None,
        "tuneyard.resumed_from": attempt.resumed_from or None,
        "error.type": attempt.failure if ended is not None else None,
        "tuneyard.stopped_for": bounded(attempt.stopped_for) if stopped else None,
    }
    made = task.child(
        f"attempt {attempt.number}",
        _moment(attempt.placed_at) or task.start,
        ended,
        attributes=told(known) | (outcome if ended is not None else {}),
        events=_stop(attempt),
        links=(before.span_id,) if before is not None else (),
        error=bounded(f"{attempt.failure}: {attempt.message}") if failed else "",
    )
    made = replace(made, context=context, end=made.end if ended is not None else None)
    yield made
    yield from stage_spans(made, _start(attempt, made), attempt.stages)


def _stop(attempt: Attempt) -> tuple[SpanEvent, ...]:
    asked = _moment(attempt.stop_asked_at)
    return (SpanEvent("asked to stop", asked, told({"tuneyard.reason": attempt.stopping})),) if asked is not None else ()


def _start(attempt: Attempt, made: Span) -> list[Mark]:
    """The phases from a placement to the first stage of the driver: each begins with the milestone before it."""
    start = attempt.start
    if start is None:
        return [Mark("start", made.start)]
    marks = [Mark("create RayJob", made.start)]
    for name, text in (
        ("schedule pods", start.created_at),
        ("pull images and start containers", start.scheduled_at),
        ("run setup and start Ray", start.running_at),
        ("start the driver", start.ready_at),
    ):
        at = _moment(text)
        if at is None:
            break
        marks.append(Mark(name, at))
    first = _moment(attempt.stages[0].began_at) if attempt.stages else None
    return marks if first is None else [replace(mark, at=min(mark.at, first)) for mark in marks]


def _submitted(job: _Job) -> datetime | None:
    at = _moment((job.metadata.get("annotations") or {}).get(SUBMITTED))
    return at if at is not None and timedelta() <= job.created + timedelta(seconds=1) - at <= _LONGEST_SUBMIT else None


def _outer(metadata: Object) -> Context | None:
    return Context.parse(str((metadata.get("annotations") or {}).get(TRACEPARENT, "")))


def _needs(spec: Any) -> dict[str, list[str]]:
    tasks = spec.get("tasks") if isinstance(spec, Mapping) else None
    named = [task for task in tasks if isinstance(task, Mapping)] if isinstance(tasks, list) else []
    return {str(task.get("name")): [*map(str, _listed(task.get("dependsOn"))), *_models(task)] for task in named}


def _models(task: Object) -> Iterator[str]:
    """Tasks whose model a task reads."""
    for kind in TASK_KINDS:
        body = task.get(kind)
        model = body.get("model") if isinstance(body, Mapping) else None
        if isinstance(model, Mapping) and isinstance(model.get("from"), str):
            yield model["from"]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _moment(text: Any) -> datetime | None:
    try:
        return moment_of(text) if isinstance(text, str) and text else None
    except ValueError:
        return None
