"""The runner: follows one Schedule in the foreground until it is told to stop."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from uuid import uuid4
from zoneinfo import ZoneInfo

from tuneyard.api import JobSpec, Phase, Schedule
from tuneyard.api.base import API_VERSION
from tuneyard.api.moments import moment_of, written
from tuneyard.api.schedule import ScheduleGoal
from tuneyard.api.schedule_status import ScheduledRun, ScheduleStatus
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.scheduled.clock import Clock
from tuneyard.runtime.scheduled.folder import ScheduleFolder
from tuneyard.runtime.scheduled.looks import Looks
from tuneyard.runtime.scheduled.process import RunProcess
from tuneyard.runtime.scheduled.results import RUN_ID, Result, is_in_use, is_of_another_run, of_another_run, result_at
from tuneyard.runtime.scheduled.waits_said import WaitsSaid
from tuneyard.runtime.scheduled.webhook import Webhook
from tuneyard.schedules import LastGood, Moment, Run, Start, advance_schedule, last_good, next_after, run_spec, with_notices
from tuneyard.schedules.view import BAD
from tuneyard.storage import absolute, join

_GRACE_S = 600.0
_LAST_MESSAGES_S = 15.0
_FAR = timedelta(days=1)
Say = Callable[[str], None]
Reread = Callable[[], Schedule]


class Runner:
    """`reread`: the Schedule as its file says now; it may raise BadInput, and the last readable one stays. `base_dir`: the folder of
    relative paths. `say`: takes a line for people about each event."""

    def __init__(self, reread: Reread, folder: ScheduleFolder, base_dir: Path, clock: Clock, say: Say) -> None:
        self._reread, self._folder, self._base_dir, self._clock, self._say = reread, folder, base_dir, clock, say
        self._schedule = reread()
        item = folder.item()
        self._created = moment_of(item["metadata"]["creationTimestamp"]) if item is not None else clock.now()
        self._status = folder.status()
        self._processes: dict[str, RunProcess] = {}
        self._ended: dict[str, Result] = {}
        self._stopping: set[str] = set()
        self._looks = Looks(base_dir)
        self._waits_said = WaitsSaid(say)
        self._webhook = Webhook(self._schedule.metadata.namespace, self._schedule.metadata.name)
        self._bad = False

    def run(self, should_stop: ShouldStop, until: datetime | None = None) -> bool:
        """Follow the Schedule until `until`, or until `should_stop`. Returns whether all runs that ended meanwhile were good.

        At the end, runs under way are finished; after `should_stop` they are asked to stop, and a later runner resumes them. The caller
        holds the lock of the folder.
        """
        self._introduce()
        try:
            while not should_stop():
                now = self._clock.now()
                past = until is not None and now >= until
                wake = self._step(until if past and until is not None else now)
                if past and not self._processes and not self._open() and not self._looks.busy:
                    break
                self._clock.wait(min(wake, until) if until is not None and not past else wake, busy=self._is_busy)
        finally:
            self._end()
        return not self._bad

    def _introduce(self) -> None:
        goal, now = self._goal(), self._clock.now()
        coming = next_after(goal.cron, goal.time_zone, now).astimezone(ZoneInfo(goal.time_zone))
        state = "it is paused" if goal.suspend else f"next run {coming.isoformat()}"
        self._say(f"{self._name}: {goal.cron} ({goal.time_zone}), {state}; data folder {self._folder.path}")

    # --- one step

    def _step(self, now: datetime) -> datetime:
        """Do what is due. Returns the time of the next event that is known."""
        self._read_file()
        goal = self._goal()
        self._reap()
        status = with_notices(self._status, {name: said for name, said in self._webhook.told().items() if self._is_due(name)})
        step = advance_schedule(self._name, goal, status, self._created, self._runs(goal), now, self._looks.found())
        self._tell(step.status)
        self._save(step.status)  # before a process starts: a run on record is started again, and resumes
        for name in step.cancel:
            self._stop(name)
        self._waits_said.say(step.status.waiting, goal.wait_for, goal.time_zone, now)
        self._start_open(goal)
        if goal.notify is not None:
            self._webhook.send(goal.notify, step.status.runs)
        next_look = self._looks.want(step.status.waiting, now)
        coming = moment_of(step.status.next_run) if step.status.next_run else now + _FAR
        return now if self._ended else min(coming, next_look or coming)

    @property
    def _name(self) -> str:
        return self._schedule.metadata.name

    @property
    def _is_busy(self) -> bool:
        return bool(self._processes) or self._looks.busy or self._webhook.busy

    def _read_file(self) -> None:
        try:
            schedule = self._reread()
        except Exception as error:  # noqa: BLE001 - a file that is being edited must not end the runner
            self._say(f"the file cannot be read, and the Schedule goes on as it was: {error}")
            return
        if schedule != self._schedule:
            self._say("the file was edited: the next runs follow it")
            self._schedule = schedule

    def _goal(self) -> ScheduleGoal:
        """The Schedule's spec with the wishes of other commands. An unreadable wish is left out."""
        spec = self._schedule.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        try:
            return ScheduleGoal.model_validate({**spec, **self._folder.wishes()})
        except ValueError as error:
            self._say(f"wishes.json cannot be used: {error}")
            return self._schedule.spec

    def _save(self, status: ScheduleStatus) -> None:
        if status != self._status or self._folder.item() is None:
            self._folder.save(self._schedule, self._created, status)
        self._status = status

    # --- runs

    def _open(self) -> list[ScheduledRun]:
        """Runs on record without an end."""
        return [record for record in self._status.runs if record.verdict == ""]

    def _runs(self, goal: ScheduleGoal) -> list[Run]:
        """The runs on record that have not ended, as they are now."""
        found = []
        for record in self._open():
            result = self._ended.pop(record.name, None)
            phase = result.phase if result is not None else Phase.RUNNING if record.name in self._processes else Phase.PENDING
            figures = result.figures([*goal.regression]) if result is not None else ()
            message = result.message if result is not None else ""
            started = moment_of(record.started_at) if record.started_at else self._clock.now()
            finished = written(self._clock.now()) if phase.final else None
            against = LastGood.of((self._folder.job(record.name).get("metadata") or {}).get("annotations") or {})
            found.append(
                Run(
                    record.name,
                    started,
                    phase,
                    moment_of(record.due),
                    record.kind,
                    figures,
                    finished,
                    message,
                    output=self._output(record.name),
                    rows_compared_with=against.run if against is not None else "",
                    rows_not_compared=result.rows_not_compared if result is not None else "",
                )
            )
        return found

    def _reap(self) -> None:
        """Take in the results of processes that have ended."""
        for name, process in list(self._processes.items()):
            if process.code is None:
                continue
            del self._processes[name]
            result = result_at(self._output(name), process.code, process.log, run=self._id(name))
            if name in self._stopping:
                self._stopping.discard(name)
                result = Result(Phase.CANCELLED, message="replaced by a later run")
            self._ended[name] = result

    def _start_open(self, goal: ScheduleGoal) -> None:
        """Start the runs on record that have no process: new ones, and those of a runner that was killed."""
        if self._stopping:
            return  # a run that replaces another begins when that has ended
        last = max((record.due for record in self._open() if record.kind == "scheduled"), default="")
        for record in self._open():
            if record.name in self._processes or record.name in self._ended:
                continue
            output = self._output(record.name)
            done = self._result_before(record.name) if self._folder.job_file(record.name).exists() else None
            if done is not None and done.phase.final:
                self._ended[record.name] = done
            elif goal.concurrency == "replace" and record.kind == "scheduled" and record.due < last:
                self._ended[record.name] = Result(Phase.CANCELLED, message="replaced by a later run")
            elif not is_in_use(output):  # the process of a runner that was killed may still write its last checkpoint
                self._start(goal, Start(record.name, moment_of(record.due), record.kind))

    def _result_before(self, name: str) -> Result:
        """The result of a run that an earlier runner has started."""
        output, run = self._output(name), self._id(name)
        return Result(Phase.FAILED, of_another_run(output)) if is_of_another_run(output, run) else result_at(output, run=run)

    def _start(self, goal: ScheduleGoal, start: Start) -> None:
        file, log = self._folder.job_file(start.name), self._folder.log_file(start.name)
        is_new = not file.exists()
        if is_new:
            try:
                job = self._job(goal, start)
            except ValueError as error:  # its texts have other values than those that `validate` has seen
                self._ended[start.name] = Result(Phase.FAILED, f"its job is not valid: {error}")
                return
            self._folder.put_job(start.name, job)
        resume = [] if is_new else ["--resume"]
        arguments = ["run", str(file), "--base", str(self._base_dir), "--out", self._output(start.name), *resume]
        self._processes[start.name] = RunProcess(arguments, log)
        self._say(f"{start.name} {'starts' if is_new else 'goes on'}: due {written(start.due)}, log {log}")

    def _job(self, goal: ScheduleGoal, start: Start) -> JobSpec:
        spec = run_spec(goal.template.spec.to_yaml_dict(), Moment(start.name, start.due, goal.time_zone))
        storage = spec.get("storage") or {}
        if storage.get("output"):  # a runner that goes on in another working folder, and later runs, find it there
            spec["storage"] = {**storage, "output": absolute(storage["output"], Path.cwd())}
        against = last_good(self._status.runs, written(start.due))
        metadata = {
            "name": start.name,
            "namespace": self._schedule.metadata.namespace,
            "labels": goal.template.labels,
            "annotations": {RUN_ID: uuid4().hex, **(against.annotations if against is not None else {})},
        }
        return JobSpec.model_validate({"apiVersion": API_VERSION, "kind": "JobSpec", "metadata": metadata, "spec": spec})

    def _output(self, name: str) -> str:
        """The output of a run: that of its JobSpec, else a folder in the data folder."""
        storage = (self._folder.job(name).get("spec") or {}).get("storage") or {}
        return str(storage.get("output") or join(str(self._folder.path), name))

    def _id(self, name: str) -> str:
        """The id of a run, which its output repeats; empty for runs of older versions."""
        return str(((self._folder.job(name).get("metadata") or {}).get("annotations") or {}).get(RUN_ID, ""))

    def _stop(self, name: str) -> None:
        if name in self._processes and name not in self._stopping:
            self._stopping.add(name)
            self._processes[name].ask_to_stop()
            self._say(f"{name} is replaced by a later run, and asked to stop")

    # --- news, and the end

    def _is_due(self, name: str) -> bool:
        return any(record.name == name and record.notice == "due" for record in self._status.runs)

    def _tell(self, status: ScheduleStatus) -> None:
        before = {record.name: record for record in self._status.runs}
        for record in status.runs:
            old = before.get(record.name)
            if record.verdict and (old is None or old.verdict != record.verdict):
                self._bad |= record.verdict in BAD
                figures = ", ".join(f"{figure.name} {figure.value:.4g}" for figure in record.figures)
                self._say(": ".join(part for part in (f"{record.name} {record.verdict}", figures, record.message) if part))

    def _end(self) -> None:
        """Ask running processes to stop, wait for them, and store what has ended."""
        for process in self._processes.values():
            process.ask_to_stop()
        try:
            for process in self._processes.values():
                process.end(_GRACE_S)
        except KeyboardInterrupt:
            for process in self._processes.values():
                process.ask_to_stop()
                process.end(10.0)
            raise
        finally:
            self._webhook.finish(_LAST_MESSAGES_S)
            told = {name: said for name, said in self._webhook.told().items() if self._is_due(name)}
            self._save(with_notices(self._status, told))
