"""What becomes of a JobSpec next: pure, level-triggered, the same whoever asks and however often.

`advance` looks at goal, status and what is on the members, and answers with the status as it should read, and with what is to be done
once that status is stored. A hub that is killed in between is repeated by the next one: nothing here is remembered anywhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from tuneyard.api import Attempt, FailureKind, JobSpec, JobStatus, Phase, TaskStatus
from tuneyard.api.status import TemplateStatus
from tuneyard_operators.hub.attempts import advance_attempt, is_active
from tuneyard_operators.hub.clock import seconds_since, written
from tuneyard_operators.hub.conditions import with_conditions
from tuneyard_operators.hub.observed import UNSEEN, Observed
from tuneyard_operators.hub.retrying import answer_to, not_before
from tuneyard_operators.hub.settings import Settings


class Verb(StrEnum):
    START = "start"
    """Create the Secret and the RayJob of the attempt, where they are not there."""
    STOP = "stop"
    """Ask the attempt to commit and end."""
    CLEAN = "clean"
    """Remove whatever of the attempt is on its member."""
    HOLD = "hold"
    """Put the finalizer on the JobSpec."""
    RELEASE = "release"
    """Take the finalizer off: nothing is left on any member."""
    REMOVE = "remove"
    """Delete the JobSpec, whose time to live is over."""


@dataclass(frozen=True)
class Action:
    verb: Verb
    attempt: Attempt | None = None


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The JobSpec beside what its metadata says of it."""

    job: JobSpec
    uid: str
    generation: int
    created: datetime
    deleted: bool = False
    held: bool = False
    """Whether the finalizer is there."""
    problem: str = ""
    """Why the spec cannot work, where it cannot: nothing is started then."""
    may_pass: bool = False
    """The problem is not the JobSpec's own, such as a template that is not there: it waits, and has not failed."""
    template: TemplateStatus | None = None
    """The template whose defaults are in `job`, as attempts keep it."""
    missing: str = ""
    """What it waits for that people must make, such as a Secret."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`status` as it should read; `actions` for after it is stored; `look_again_s`: when time alone may change something."""

    status: JobStatus
    actions: tuple[Action, ...] = ()
    look_again_s: float | None = None
    ready: tuple[str, ...] = field(default=())
    """Tasks that wait for a placement."""


def advance(goal: Goal, status: JobStatus, seen: Mapping[str, Observed], now: datetime, settings: Settings) -> Outcome:
    """The next status of a job, and what to do. `seen`: attempt name -> what is on its member."""
    return _Advance(goal, copied(status), seen, now, settings).outcome()


def copied(status: JobStatus) -> JobStatus:
    """A status that may be changed without the other being changed: what is shared, deeper down, is only ever replaced."""
    attempts, tasks = ([each.model_copy() for each in those] for those in (status.attempts, status.tasks))
    return status.model_copy(update={"attempts": attempts, "tasks": tasks, "usage": status.usage.model_copy()})


class _Advance:
    def __init__(self, goal: Goal, status: JobStatus, seen: Mapping[str, Observed], now: datetime, settings: Settings) -> None:
        self.goal = goal
        self.status = status
        self.seen = seen
        self.now = now
        self.settings = settings
        self.actions: list[Action] = []
        self.later: list[float] = []

    def outcome(self) -> Outcome:
        ready: tuple[str, ...] = ()
        self.status.observed_generation = self.goal.generation
        self._refuse_or_forgive()
        if not self.goal.held and not self.goal.deleted:
            self.actions.append(Action(Verb.HOLD))
        self._sync_tasks()
        for attempt in self.status.attempts:
            self._follow(attempt)
        if not self.status.phase.final and not self.goal.deleted:
            self._end_if_asked()
        if not self.status.phase.final and not self.goal.deleted:
            ready = self._ready()
        if self.status.phase.final or self.goal.deleted:
            self._stop_all("Cancelled")
        self._summarise(ready)
        self._leave()
        self.status = with_conditions(self.status, self.goal, self.now)
        return Outcome(status=self.status, actions=self._wanted_actions(), look_again_s=min(self.later, default=None), ready=ready)

    def _wanted_actions(self) -> tuple[Action, ...]:
        """Each once, and no start or stop of an attempt that has been ended on the way."""
        over = (Verb.START, Verb.STOP)
        kept = {
            (action.verb, action.attempt.number if action.attempt else 0): action
            for action in self.actions
            if not (action.verb in over and action.attempt is not None and not is_active(action.attempt))
        }
        return tuple(kept.values())

    def _refuse_or_forgive(self) -> None:
        """A spec that cannot work fails the job before it starts; correcting it starts the job."""
        fails = bool(self.goal.problem) and not self.goal.may_pass
        if fails and not self.status.attempts:
            self._finish(Phase.FAILED, self.goal.problem)
        elif self.status.phase is Phase.FAILED and not self.status.attempts and not fails:
            self.status = JobStatus(observed_generation=self.goal.generation, output=self.status.output)

    def _sync_tasks(self) -> None:
        if self.goal.problem and (self.status.attempts or self.goal.may_pass):  # its tasks are not known: running attempts stay
            return
        known = {task.name: task for task in self.status.tasks}
        self.status.tasks = [known.get(task.name) or TaskStatus(name=task.name) for task in self.goal.job.spec.tasks]

    def _follow(self, attempt: Attempt) -> None:
        """Bring one attempt up to date with what its member shows."""
        seen = self.seen.get(attempt.name, UNSEEN)
        task = self._task(attempt.task)
        if is_active(attempt):
            step = advance_attempt(attempt, task, seen, self.now, self.settings)
            self.later += step.later
            if step.start and not self.goal.deleted and not self.goal.problem:
                self.actions.append(Action(Verb.START, attempt))
            if step.stop:
                self.actions.append(Action(Verb.STOP, attempt))
        if not is_active(attempt) and not attempt.cleaned:
            if seen.nothing_left:
                attempt.cleaned = True
            elif seen.known:
                self.actions.append(Action(Verb.CLEAN, attempt))

    def _end_if_asked(self) -> None:
        spec = self.goal.job.spec
        if spec.cancelled:
            self._stop_all("Cancelled")
            if not self._is_active():
                self._finish(Phase.CANCELLED, "cancelled; its checkpoints are kept")
        elif spec.deadline is not None and self.status.started_at is not None:
            left = spec.deadline - seconds_since(self.status.started_at, self.now)
            if left > 0:
                self.later.append(left)
                return
            self._stop_all("Deadline")
            if not self._is_active():
                self._finish(Phase.FAILED, f"Deadline: the job's {spec.deadline:g} s have passed; its checkpoints are kept")

    def _is_active(self) -> bool:
        return any(is_active(attempt) for attempt in self.status.attempts)

    def _ready(self) -> tuple[str, ...]:
        """Tasks to place now; decides on the way whether the job has succeeded or failed."""
        spec = self.goal.job.spec
        if self.goal.problem and (self.status.attempts or self.goal.may_pass):
            done = {task.name for task in self.status.tasks if task.phase is Phase.SUCCEEDED}
            if {task.name for task in spec.tasks} <= done:  # by their names, which a stub has too
                self._finish(Phase.SUCCEEDED, "")
            return ()
        over = spec.cancelled or any(attempt.stopping == "Deadline" for attempt in self.status.attempts)
        done = {task.name for task in self.status.tasks if task.phase is Phase.SUCCEEDED}
        if len(done) == len(spec.tasks):
            self._finish(Phase.SUCCEEDED, "")
            return ()
        ready: list[str] = []
        for task in spec.task_order():
            if task.name in done or any(a.task == task.name and is_active(a) for a in self.status.attempts):
                continue
            failed = self._last_failure(task.name)
            if failed is not None and answer_to(failed, self._failures(task.name), spec.retries) == "stop":
                self._fail(task.name, failed)
                return ()
            if over or spec.suspend or self.goal.missing or not set(spec.needs(task)) <= done:
                continue
            wait_s = not_before(self._own(task.name), self.settings, self.now)
            if wait_s > 0:
                self.later.append(wait_s)
                continue
            ready.append(task.name)
        if spec.suspend:
            self._stop_all("Preempted")
        return tuple(ready)

    def _fail(self, task: str, attempt: Attempt) -> None:
        tried = len(self._failures(task))
        again = f" (after {tried} attempts)" if tried > 1 else ""
        self._task(task).phase = Phase.FAILED
        step = f"; next: {attempt.next_step}" if attempt.next_step else ""
        self._finish(Phase.FAILED, f"task {task} failed{again}: {attempt.failure}: {attempt.message}{step}")

    def _finish(self, phase: Phase, message: str) -> None:
        if not self.status.phase.final:
            self.status.phase = phase
            self.status.finished_at = written(self.now)
        self.status.message = message

    def _stop_all(self, reason: str) -> None:
        for attempt in self.status.attempts:
            if is_active(attempt) and not attempt.stopping:
                attempt.stopping = reason
                attempt.stop_asked_at = written(self.now)
                self._follow(attempt)

    def _summarise(self, ready: tuple[str, ...]) -> None:
        """The job's phase, message, placement and progress from those of its attempts."""
        for task in self.status.tasks:
            if not task.phase.final:
                task.phase = self._phase_of(task.name)
        active = [attempt for attempt in self.status.attempts if is_active(attempt)]
        shown = active[-1] if active else (self.status.attempts[-1] if self.status.attempts else None)
        if shown is not None:
            waits = not active and not self.status.phase.final
            self.status.placement = None if waits else shown.placement
            self.status.progress = self._task(shown.task).progress
        self.status.artifacts = [uri for task in self.status.tasks for uri in task.artifacts]
        if self.status.phase.final:
            return
        if active:
            running = any(attempt.phase is Phase.RUNNING for attempt in active)
            self.status.phase = Phase.RUNNING if running else Phase.STARTING
            self.status.message = "; ".join(f"{attempt.task}: {attempt.message}" for attempt in active if attempt.message)
            return
        self.status.phase = Phase.QUEUED if ready or self.status.attempts or self.goal.job.spec.suspend else Phase.PENDING
        if self.goal.problem and not self.status.attempts:
            self.status.message = f"waits: {self.goal.problem}"
        elif self.goal.problem:
            self.status.message = f"nothing more of it is started: {self.goal.problem}"
        elif self.goal.missing:
            self.status.message = self.goal.missing
        elif self.goal.job.spec.suspend:
            self.status.message = "suspended: set spec.suspend to false to go on"
        elif not ready:
            last = self.status.attempts[-1] if self.status.attempts else None
            self.status.message = f"{last.task}: {last.failure}: {last.message}; trying again" if last and last.failure else ""

    def _phase_of(self, task: str) -> Phase:
        phases = [attempt.phase for attempt in self._own(task) if is_active(attempt)]
        if phases:
            return phases[-1]
        return Phase.QUEUED if self._own(task) else Phase.PENDING

    def _leave(self) -> None:
        """Clean-up at the end of a JobSpec's own life."""
        clean = all(attempt.cleaned for attempt in self.status.attempts)
        if self.goal.deleted:
            if clean and self.goal.held:
                self.actions.append(Action(Verb.RELEASE))
        elif self.status.phase.final and clean and self.goal.job.spec.ttl_after_finished is not None and self.status.finished_at:
            left = self.goal.job.spec.ttl_after_finished - seconds_since(self.status.finished_at, self.now)
            if left <= 0:
                self.actions.append(Action(Verb.REMOVE))
            else:
                self.later.append(left)

    def _task(self, name: str) -> TaskStatus:
        found = next((task for task in self.status.tasks if task.name == name), None)
        return found or TaskStatus(name=name)  # a task that was taken out of the spec while it ran

    def _own(self, task: str) -> list[Attempt]:
        return [attempt for attempt in self.status.attempts if attempt.task == task]

    def _failures(self, task: str) -> list[Attempt]:
        return [attempt for attempt in self._own(task) if attempt.failure and attempt.failure != FailureKind.PREEMPTED]

    def _last_failure(self, task: str) -> Attempt | None:
        own = self._own(task)
        return own[-1] if own and own[-1].failure and own[-1].failure != FailureKind.PREEMPTED else None
