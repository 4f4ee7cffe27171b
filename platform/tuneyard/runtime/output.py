"""The records in a job's output folder: the job that owns it, the run that writes to it now, and the finished tasks.

`job.json` names the job, `<task>/task.json` holds the settings and inputs of a started task, and `<task>/result.json`, written last,
records its success.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tuneyard.api import BadInput, JobSpec, Task
from tuneyard.api.local_files import SHIPPED, hub_name
from tuneyard.api.quoting import quoted
from tuneyard.api.resuming import Changed, Effect, is_longer, settings_of
from tuneyard.api.resuming import changes as resume_changes
from tuneyard.api.secrets import redact_fields
from tuneyard.api.tasks import LOGS
from tuneyard.runtime.inputs import Inputs, changes
from tuneyard.storage import Store, is_local, local_path, open_store
from tuneyard.tracking import REPORT_JSON, Report
from tuneyard.training.model_finder import lost_files

JOB = "job.json"
LOCK = ".lock"
_SHOWN, _LONGEST = 5, 80
_ELSEWHERE = "start over in another output: storage.output, or --out DIR"


class JobOutput:
    """Reads and writes the job's own records below `uri`."""

    def __init__(self, uri: str) -> None:
        self.uri = str(local_path(uri).absolute()) if is_local(uri) else uri
        self.store: Store = open_store(self.uri)

    @property
    def local_folder(self) -> Path | None:
        """The folder on this machine; None for object stores and HDFS."""
        return local_path(self.uri) if is_local(self.uri) else None

    def task_uri(self, task: str) -> str:
        return self.store.url(task)

    def claim(self, job: JobSpec, *, resume: bool) -> None:
        """Claim the folder for `job`. Raises BadInput if it holds another job, or this one without `resume`."""
        # List files before looking for job.json: another task of the same job may start now, and it writes job.json first.
        foreign = self.local_folder is not None and any(path.name not in (LOCK, LOGS, SHIPPED) for path in _entries(self.local_folder))
        if self.store.exists(JOB):
            if not resume:
                raise BadInput(f"{self.uri} holds a job already", "resume it: --resume; or give another folder: --out DIR")
            other = json.loads(self.store.get(JOB))["metadata"]["name"]
            if other != job.metadata.name:
                raise BadInput(f"{self.uri} holds the job {other}, not {job.metadata.name}", "give another folder: --out DIR")
        elif foreign:
            raise BadInput(f"{self.uri} is not empty, and holds no output of a job", "give another folder: --out DIR")
        self._put_json(JOB, redact_fields(job.to_yaml_dict()))

    def report(self) -> Report | None:
        """The report of an earlier run; None if there is none, or if it cannot be read."""
        if not self.store.exists(REPORT_JSON):
            return None
        try:
            return Report.from_json(self.store.get(REPORT_JSON))
        except (ValueError, TypeError):
            return None

    def finished(self, task: Task, inputs: Inputs | None = None) -> dict[str, Any] | None:
        """The result of a task that has succeeded; None if it has not, or goes on. Raises BadInput if it succeeded with other settings, or
        with other data or scripts than `inputs` (None: any)."""
        if not self.store.exists(f"{task.name}/result.json") or self.goes_on(task):
            return None
        self._check_same(task, inputs or {}, finished=True)
        result: dict[str, Any] = json.loads(self.store.get(f"{task.name}/result.json"))
        return result

    def lost(self, task: Task) -> list[str]:
        """Files that the models of a train task have lost since it succeeded, which its newest checkpoint can bring back.

        Raises BadInput where there is no checkpoint. Without one, a model that is gone as a whole is taken as deleted on purpose.
        """
        if task.train is None:
            return []
        has_checkpoint = self.store.has_files(f"{task.name}/checkpoints")
        result = json.loads(self.store.get(f"{task.name}/result.json"))
        made = {"model": result.get("model_uri") or result.get("adapter_uri"), "merged": result.get("merged_uri")}
        found = list[str]()
        for folder in (f"{task.name}/{name}" for name, uri in made.items() if uri):
            found += [f"{folder}/{path}" for path in lost_files(open_store(self.store.url(folder)))]
            found += [folder] if has_checkpoint and not self.store.has_files(folder) else []
        if found and not has_checkpoint:
            what = ", ".join(found[:_SHOWN])
            cause = f"{what} of {self.uri} was lost or changed, and task {task.name} has no checkpoint to write it from"
            raise BadInput(cause, "take the files from a copy, or train the model in another output: --out DIR")
        return found

    def goes_on(self, task: Task) -> bool:
        """Whether a train task has succeeded, and has more steps or epochs now."""
        if task.train is None or not all(self.store.exists(f"{task.name}/{name}") for name in ("result.json", "task.json")):
            return False
        return is_longer(_training_changes(task, json.loads(self.store.get(f"{task.name}/task.json"))["task"]) or [])

    def reopen(self, task: Task, job: JobSpec, inputs: Inputs) -> list[str]:
        """Let a task that has succeeded go on. Returns the tasks that are to run anew: their results are removed, because they are of the
        model as it was. The task's own result is removed last, so that a process that is killed meanwhile leaves a task to reopen.

        Raises BadInput before anything is removed, if the task cannot go on, or has other data or scripts than it had.
        """
        self._check_reopening(task, job)
        self._check_same(task, inputs)
        again = [below for below in job.spec.below(task.name) if self.store.exists(f"{below.name}/task.json")]
        for below in again:
            self.store.delete(f"{below.name}/result.json")
            if below.score is not None:
                self.store.delete_prefix(below.name)
        self.store.delete(f"{task.name}/result.json")
        return [below.name for below in again]

    def _check_reopening(self, task: Task, job: JobSpec) -> None:
        """Raises BadInput if there is no checkpoint to go on from, or if another task has trained on the model as it was."""
        if not self.store.has_files(f"{task.name}/checkpoints"):
            raise BadInput(
                f"task {task.name} has ended, and has no checkpoint left to go on from",
                f"train its model in another output: model: {{name: {self.store.url(f'{task.name}/model')}}}, --out DIR",
            )
        for below in job.spec.below(task.name):
            if below.score is None and below.process is None and self.store.exists(f"{below.name}/task.json"):
                raise BadInput(
                    f"task {task.name} has more steps than it had, and task {below.name} has begun with its model as it was",
                    f"{_ELSEWHERE}; or restore the length of {task.name}",
                )

    def check_settings(self, job: JobSpec, wanted: Collection[str]) -> None:
        """Raises BadInput if a wanted task was started, or has succeeded, with other settings. Writes nothing."""
        for task in (task for task in job.spec.tasks if task.name in wanted):
            if self.goes_on(task):
                self._check_reopening(task, job)
                continue
            begun = "task.json" if task.process is None else "result.json"  # a failed process leaves nothing to resume
            if self.store.exists(f"{task.name}/{begun}") and self.store.exists(f"{task.name}/task.json"):
                finished = self.store.exists(f"{task.name}/result.json")
                self._check_settings(task, json.loads(self.store.get(f"{task.name}/task.json")), finished=finished)

    def begin(self, task: Task, inputs: Inputs) -> None:
        """Record the settings and inputs of a task at its start. Raises BadInput if an earlier attempt with others has left commits."""
        # A failed process leaves nothing to resume, so its author may correct it.
        if task.process is None and self.store.exists(f"{task.name}/task.json"):
            self._check_same(task, inputs)
        asked = {"fingerprint": fingerprint(task), "task": redact_fields(task.to_yaml_dict()), "inputs": inputs}
        self._put_json(f"{task.name}/task.json", asked)

    def finish(self, task: str, result: Mapping[str, Any]) -> None:
        """Commit the task: from here on `--resume` skips it."""
        self._put_json(f"{task}/result.json", result)

    def _check_same(self, task: Task, inputs: Inputs, *, finished: bool = False) -> None:
        where = f"{task.name}/task.json"
        asked = json.loads(self.store.get(where))
        self._check_settings(task, asked, finished=finished)
        different = changes(asked.get("inputs") or {}, inputs)
        if different:
            what, are = ("data", "is") if task.process is None else ("scripts", "are")
            where_then = self.store.url(where)
            raise BadInput(
                f"task {task.name} was started with other {what} than there {are} now, see {where_then}:\n" + "\n".join(different),
                f"restore the {what} to resume, or {_ELSEWHERE}",
            )

    def _check_settings(self, task: Task, asked: Mapping[str, Any], *, finished: bool) -> None:
        if asked["fingerprint"] == fingerprint(task):
            return
        of_training = _training_changes(task, asked["task"])
        if of_training is None:
            changed = list(_settings_changed(asked["task"], redact_fields(task.to_yaml_dict())))
        else:
            taken = (Effect.NOTHING,) if finished else (Effect.NOTHING, Effect.NEXT_STEP, Effect.BY_ROWS)
            changed = [
                f"train.{change.field}: {_shown(change.before)} -> {_shown(change.now)}"
                for change in of_training
                if change.effect not in taken
            ]
            if finished and not changed and task.train is not None and _asks_for_merge(of_training):
                raise BadInput(
                    f"task {task.name} has ended without the merged model that the JobSpec asks for now",
                    f"write it: tuneyard merge {quoted(self.uri)} --task {task.name} --out FOLDER; to resume, take merge out again",
                )
        if changed:
            raise BadInput(
                f"task {task.name} was started with other settings than the JobSpec has now ({'; '.join(changed[:_SHOWN])}; "
                f"see {self.store.url(f'{task.name}/task.json')})",
                f"restore the settings to resume, or {_ELSEWHERE}",
            )

    def _put_json(self, path: str, value: Any) -> None:
        self.store.put(path, json.dumps(value, indent=1, default=str).encode() + b"\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock a local folder against a second `tuneyard run`. Raises BadInput if another run has locked it."""
        folder = self.local_folder
        if folder is None:
            yield
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock = (folder / LOCK).open("w")
        except OSError as error:
            raise BadInput(f"cannot write to {folder}: {error.strerror}", "give a folder that can be written to: --out DIR") from error
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BadInput(f"another run is writing to {folder} now", "wait for it, or give another folder: --out DIR") from None
            yield


def _training_changes(task: Task, before: Any) -> list[Changed] | None:
    """The changed fields of a train task since its task.json; None where more than these differs, or they cannot be compared."""
    try:
        then = Task.model_validate(before)
    except ValueError:  # another version of Tuneyard
        return None
    if task.train is None or then.train is None or fingerprint(then.model_copy(update={"train": task.train})) != fingerprint(task):
        return None
    return resume_changes(settings_of(then.train), settings_of(task.train))


def _asks_for_merge(changed: Iterable[Changed]) -> bool:
    return any(change.field.endswith(".merge") and change.now for change in changed)


def _settings_changed(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """`train.steps: 10 -> 20`, for each value that differs."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in dict.fromkeys([*before, *now]):
            yield from _settings_changed(before.get(key), now.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for number, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _settings_changed(old, new, f"{path}[{number}]")
    elif before != now:
        yield f"{path}: {_shown(before)} -> {_shown(now)}"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"…{text[-_LONGEST:]}"


def fingerprint(task: Task) -> str:
    """A hash of a task's settings, without those that change only where and how fast it runs. Tasks with the same hash share results."""
    # A server leaves nothing to resume, so its settings may change.
    values = task.model_dump(mode="json", exclude={"resources": True, "depends_on": True, "serve": True})
    if (body := task.train or task.score) is not None and body.model.name is not None:  # records of older versions have no hf://
        values[task.kind]["model"]["name"] = hub_name(body.model.name)
    for kind, fields in _WITHOUT_EFFECT.items():
        if values.get(kind) is not None:
            values[kind] = {name: value for name, value in values[kind].items() if name not in fields}
    if task.endpoint is not None:
        values["score"]["endpoint"] = task.endpoint.model_dump(mode="json", include={"url", "model", "body"})
    for kind in ("train", "rank"):
        if values.get(kind) is not None:
            values[kind]["batch"].pop("micro")
    if values.get("rank") is not None:  # the placement of tables does not change the result
        values["rank"]["tables"] = {name: value for name, value in values["rank"]["tables"].items() if name not in ("sharding", "offload")}
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


_WITHOUT_EFFECT = {
    "train": {"strategy", "checkpoint"},
    "rank": {"strategy", "checkpoint"},
    "tune": {"budget"},
    "score": {"engine", "max_error_fraction"},
    "process": {"timeout_s"},
}


def default_output(job: JobSpec, *, resume: bool) -> str:
    """The output of a job without --out: storage.output, else runs/NAME-N below the working folder.

    N is the first free number, or the last used one with `resume`.
    """
    if job.spec.storage.output is not None:
        return job.spec.storage.output
    taken = 0
    while Path("runs", f"{job.metadata.name}-{taken + 1}").exists():
        taken += 1
    return str(Path("runs", f"{job.metadata.name}-{max(taken, 1) if resume else taken + 1}"))


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []
