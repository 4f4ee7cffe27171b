"""Decides the next status of a job and the actions that follow from it. Pure and level-triggered: the same facts give the same outcome.

`advance` is the one place of decisions about a job. It gets the goal, the stored status, the observed attempts and the scheduler's
decisions, and works in this order:

1. refuse a spec that cannot work; list its tasks;
2. follow each attempt: start, end, sleep;
3. end the job if it is cancelled or past its deadline; stop victims that make room;
4. find the tasks that are ready; stop all attempts of a job that has ended or is deleted; clean up after attempts that have ended;
5. sum up phase and message; add an attempt for each placed task, and the reason for each that waits;
6. remove the finalizer of a deleted JobSpec once its attempts are cleaned up; update conditions, output and usage; cut the status to its
   limits.

The outcome's actions are carried out once its status is stored. If a hub is killed in between, the next one repeats them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tuneyard.admission import ask_of
from tuneyard.api import Attempt, FailureKind, JobStatus, Phase, TaskStatus
from tuneyard.federation import Ask
from tuneyard_operators.hub.attempts import advance_attempt, is_active
from tuneyard_operators.hub.clock import at, seconds_since, written
from tuneyard_operators.hub.conditions import with_conditions
from tuneyard_operators.hub.decisions import Decided, record_owed, start, with_owed, word
from tuneyard_operators.hub.evidence import why_waiting
from tuneyard_operators.hub.goals import NO_NAME, Goal, output_of
from tuneyard_operators.hub.observed import UNSEEN, Observed
from tuneyard_operators.hub.outcomes import Action, Outcome, Verb
from tuneyard_operators.hub.retries import answer_to, not_before
from tuneyard_operators.hub.settings import Settings
from tuneyard_operators.hub.status_size import fitted
from tuneyard_operators.hub.summary import summarise
from tuneyard_operators.hub.usage import usage_of

_LASTS_S = 3600.0
"""An attempt of a server that ran for this long has served."""


def advance(goal: Goal, status: JobStatus, seen: Mapping[str, Observed], decided: Decided, now: datetime, settings: Settings) -> Outcome:
    """The next status of a job, and the actions that follow from it. `seen`: the observed attempts, by name."""
    return _Advance(goal, status, seen, decided, now, settings).outcome()


def copied(status: JobStatus) -> JobStatus:
    """A copy that callers may change. It shares deeper parts with the original: callers replace these, and never change them in place."""
    attempts, tasks = ([each.model_copy() for each in those] for those in (status.attempts, status.tasks))
    return status.model_copy(update={"attempts": attempts, "tasks": tasks, "usage": status.usage.model_copy()})


def _place(attempt: Attempt) -> str:
    return attempt.placement.cluster if attempt.placement is not None else ""


class _Advance:
    def __init__(
        self, goal: Goal, before: JobStatus, seen: Mapping[str, Observed], decided: Decided, now: datetime, settings: Settings
    ) -> None:
        self.goal = goal
        self.before = before
        self.status = copied(before)
        self.seen = seen
        self.decided = decided
        self.now = now
        self.settings = settings
        self.actions: list[Action] = []
        self.later: list[float] = []

    def outcome(self) -> Outcome:
        ready: tuple[str, ...] = ()
        self.status.observed_generation = self.goal.generation
        self._refuse_or_forgive()
        if not self.goal.has_finalizer and not self.goal.deleted:
            self.actions.append(Action(Verb.ADD_FINALIZER))
        self._sync_tasks()
        wakes = self._goes_on() and not self.goal.job.spec.cancelled  # a changed JobSpec wakes a server as a request does
        for attempt in self.status.attempts:
            self._follow(attempt)
            if attempt.sleeps and wakes and (self._is_asked(attempt) or self.goal.generation > attempt.asleep_at):
                attempt.woken_at, attempt.next_step, self.status.message = written(self.now), "", ""
        if self._goes_on():
            self._end_if_asked()
        if self._goes_on():
            self._stop_victims()
            ready = self._ready()
        if not self._goes_on():
            self._stop_all("Cancelled")
        for attempt in self.status.attempts:
            self._clean_up(attempt)
        summarise(self.status, self.goal, ready)
        asks = self._asks(ready)
        worded_at = self._take_in_decisions(asks)
        self._leave()
        status = self._finished_status()
        changed = status != self.before
        if changed:
            status.usage.gpu_hours, status.usage.cost = usage_of(status.attempts, self.now)
        return Outcome(
            status=status,
            changed=changed,
            actions=self._wanted_actions(),
            look_again_s=min(self.later, default=None),
            asks=asks,
            worded_at=worded_at,
        )

    def _goes_on(self) -> bool:
        return not self.status.phase.final and not self.goal.deleted

    def _stop_victims(self) -> None:
        """Give notice to attempts that make room for others."""
        for attempt in self.status.attempts:
            reason = self.decided.victims.get(attempt.number)
            if reason and is_active(attempt) and not attempt.stopping:
                attempt.stopped_for = reason
                self._stop(attempt, "Preempted")

    def _asks(self, ready: tuple[str, ...]) -> dict[str, Ask]:
        """What each ready task asks of the scheduler."""
        created = self.goal.created.timestamp()
        return {task: ask_of(self.goal.job, created, task, self.status, self.decided.offered) for task in ready}

    def _take_in_decisions(self, asks: Mapping[str, Ask]) -> datetime | None:
        """Start placed tasks, and write why the others wait. Returns the time of the last such message."""
        owed = {task: with_owed(ask, self.decided.tasks.get(task)) for task, ask in asks.items()}
        record_owed(self.status, owed, self.decided)
        for task, ask in owed.items():
            known = self.decided.tasks.get(task)
            if known is not None and known.still_suits(ask):
                placed = start(self.status, self.goal, task, self.decided.placements[task], self.now)
                self.actions.append(Action(Verb.START, placed))
        return word(self.status, owed, self.decided, self.before.message, self.now)

    def _finished_status(self) -> JobStatus:
        """The status with its output and conditions, within its limits."""
        status = self.status
        if not self.goal.problem and not (status.output and status.attempts):  # before attempts, the template may change it
            status.output = output_of(self.goal, self.settings.defaults)
        return fitted(with_conditions(status, self.goal, self.now))

    def _wanted_actions(self) -> tuple[Action, ...]:
        """The actions without duplicates, and without starts and stops of attempts that have ended meanwhile."""
        over = (Verb.START, Verb.STOP)
        kept = {
            (action.verb, action.attempt.number if action.attempt else 0): action
            for action in self.actions
            if not (action.verb in over and action.attempt is not None and not is_active(action.attempt))
        }
        return tuple(kept.values())

    def _refuse_or_forgive(self) -> None:
        """Fail a job whose spec cannot work before its first attempt; revive it once the spec is corrected."""
        fails = bool(self.goal.problem) and not self.goal.may_pass
        if fails and not self.status.attempts:
            self._finish(Phase.FAILED, self.goal.problem)
        elif self.status.phase is Phase.FAILED and not self.status.attempts and not fails:
            self.status = JobStatus(observed_generation=self.goal.generation, output=self.status.output)

    def _sync_tasks(self) -> None:
        if self.goal.problem and (self.status.attempts or self.goal.may_pass):  # the tasks are not known: keep the recorded ones
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
        state = seen.report.status if seen.report is not None else None
        if state is not None and state.idle and not is_active(attempt) and not attempt.asleep_at:
            attempt.asleep_at = self.goal.generation

    def _clean_up(self, attempt: Attempt) -> None:
        """Remove the objects of an attempt that has ended. One whose server sleeps gives its machines back and keeps a door, until a later
        attempt answers."""
        seen = self.seen.get(attempt.name, UNSEEN)
        if is_active(attempt) or not seen.known or (attempt.cleaned and not attempt.door):
            return
        if seen.nothing_left:
            attempt.cleaned, attempt.door = True, ""
        elif not self._keeps_door(attempt, seen):
            attempt.door = "closing" if attempt.door else ""
            if seen.refused and attempt.sleeps:
                attempt.next_step = f"requests do not: {seen.refused}"
            self.actions.append(Action(Verb.CLEAN, attempt, self._successor(attempt)))
        else:
            attempt.cleaned = attempt.cleaned or not seen.has_machines
            attempt.door = "open" if seen.door_is_open else "opening"
            waits = why_waiting([seen.door]) if seen.door is not None and attempt.sleeps and not seen.door_is_open else ""
            attempt.next_step = f"requests do not yet: {waits}" if waits else ""
            if seen.underway:
                self.later.append(1.0)
            if seen.rayjob is not None or seen.door is None:
                self.actions.append(Action(Verb.DOOR, attempt))
            elif self._is_asked(attempt) and seen.report is not None and seen.report.spec.standing != (told := self._standing(attempt)):
                self.actions.append(Action(Verb.TELL, attempt, told=told))

    def _keeps_door(self, attempt: Attempt, seen: Observed) -> bool:
        """Whether requests for a server that sleeps, or was woken, are heard: not if a person has suspended or ended the job, the member
        refuses the pod, or a later attempt has come so far."""
        spec = self.goal.job.spec
        # A spec that cannot be read tells no kinds of tasks.
        known = self.goal.problem or any(task.serve is not None and task.name == attempt.task for task in spec.tasks)
        serves = attempt.asleep_at and known
        if not serves or seen.refused or attempt.door == "closing" or spec.suspend or spec.cancelled or not self._goes_on():
            return False
        return not any(each.number > attempt.number and self._takes_over(each) for each in self._own(attempt.task))

    def _takes_over(self, later: Attempt) -> bool:
        """Whether requests reach a later attempt, or its own door, or are to be heard no more."""
        return self._answers(later) or (bool(later.asleep_at) and (later.door == "open" or (later.cleaned and not later.door)))

    def _successor(self, attempt: Attempt) -> Attempt | None:
        """The later attempt of the same task and member that runs. It needs the address also if the door closes before it answers."""
        own = (each for each in self._own(attempt.task) if each.number > attempt.number and is_active(each) and each.created)
        return next((each for each in own if _place(each) == _place(attempt)), None) if attempt.asleep_at else None

    def _answers(self, attempt: Attempt) -> bool:
        return is_active(attempt) and self.seen.get(attempt.name, UNSEEN).answers

    def _standing(self, attempt: Attempt) -> str:
        """How far the next attempt of a task is whose server was woken. It names no other job: whoever has the key reads it."""
        later = [each for each in self._own(attempt.task) if each.number > attempt.number and is_active(each)]
        if not later and (self.goal.problem or self.goal.missing):
            return "its job cannot start as it is: ask its owner"
        if not later:
            expected = self.status.expected_start
            return f"it waits for machines, which are expected at {expected}" if expected else "it waits for machines"
        report = self.seen.get(later[-1].name, UNSEEN).report
        doing = report.status.progress.summary if report is not None and report.status is not None else ""
        return f"it has machines, and starts: {doing or later[-1].message}".removesuffix(": ")

    def _is_asked(self, attempt: Attempt) -> bool:
        """Whether a request has come since the attempt's server fell asleep."""
        report = self.seen.get(attempt.name, UNSEEN).report
        return report is not None and report.status is not None and bool(report.status.asked_at)

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
        """Tasks to place now. Ends the job if all tasks have succeeded, or if one has failed for good."""
        spec = self.goal.job.spec
        if self.goal.problem and (self.status.attempts or self.goal.may_pass):
            done = {task.name for task in self.status.tasks if task.phase is Phase.SUCCEEDED}
            named = {task.name for task in spec.tasks}
            if done and (named if named != {NO_NAME} else {task.name for task in self.status.tasks}) <= done:
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
            has_served = self._last_served(task.name) is not None
            if failed is not None and answer_to(failed, self._failures(task.name), spec.retries, has_served=has_served) == "stop":
                self._fail(task.name, failed)
                return ()
            if over or spec.suspend or self.goal.missing or not set(spec.needs(task)) <= done:
                continue
            if any(attempt.sleeps for attempt in self._own(task.name)):
                continue
            wait_s = not_before(self._counted(task.name), self.settings, self.now)
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
                self._stop(attempt, reason)

    def _stop(self, attempt: Attempt, reason: str) -> None:
        attempt.stopping = reason
        attempt.stop_asked_at = written(self.now)
        self._follow(attempt)

    def _leave(self) -> None:
        """Remove the finalizer of a deleted JobSpec, or delete one whose time to live is over, once its attempts are cleaned up."""
        clean = all(attempt.cleaned and not attempt.door for attempt in self.status.attempts)
        if self.goal.deleted:
            if clean and self.goal.has_finalizer:
                self.actions.append(Action(Verb.REMOVE_FINALIZER))
        elif self.status.phase.final and clean and self.goal.job.spec.ttl_after_finished is not None and self.status.finished_at:
            left = self.goal.job.spec.ttl_after_finished - seconds_since(self.status.finished_at, self.now)
            if left <= 0:
                self.actions.append(Action(Verb.DELETE))
            else:
                self.later.append(left)

    def _task(self, name: str) -> TaskStatus:
        found = next((task for task in self.status.tasks if task.name == name), None)
        return found or TaskStatus(name=name)  # a task that was taken out of the spec while it ran

    def _own(self, task: str) -> list[Attempt]:
        return [attempt for attempt in self.status.attempts if attempt.task == task]

    def _failures(self, task: str) -> list[Attempt]:
        return [attempt for attempt in self._counted(task) if attempt.failure and attempt.failure != FailureKind.PREEMPTED]

    def _counted(self, task: str) -> list[Attempt]:
        """Attempts that count for retries: all. A server has no end, so those of one count since the last that has served."""
        return self._own(task)[self._last_served(task) or 0 :]

    def _last_served(self, task: str) -> int | None:
        """Index of the last ended attempt of a server that has served: it lasted, or ended for lack of requests."""
        if not any(each.serve is not None and each.name == task for each in self.goal.job.spec.tasks):
            return None
        ran = [(index, one, one.started_at, one.ended_at) for index, one in enumerate(self._own(task))]
        lasted = (i for i, one, began, ended in ran if ended and (one.asleep_at or (began and seconds_since(began, at(ended)) >= _LASTS_S)))
        return max(lasted, default=None)

    def _last_failure(self, task: str) -> Attempt | None:
        own = self._own(task)
        return own[-1] if own and own[-1].failure and own[-1].failure != FailureKind.PREEMPTED else None
