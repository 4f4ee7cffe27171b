"""Probes of the training data of a job, where the tokenizer is on this machine (`data.probe`). Of data in stores, the first rows are
looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuneyard.api import BadInput, JobSpec, Task, TrainData, TuneyardError
from tuneyard.api.secrets import redact
from tuneyard.runtime.references import train_data_of
from tuneyard.runtime.tokenizer_files import TOKENIZER, tokenizer_file
from tuneyard.storage import is_local

if TYPE_CHECKING:  # the commands that plan import no readers
    from tuneyard.data.probe import Probe
    from tuneyard.data.probe_findings import Finding
    from tuneyard.data.probing import Found, Wanted


@dataclass(frozen=True)
class Probed:
    """What was found in the data sets of one task, by their names (`data_sets`)."""

    task: str
    data: Mapping[str, TrainData]
    found: Mapping[str, Found]

    def probe(self, name: str = "") -> Probe | None:
        """The probe of a data set; None where there is none."""
        found = self.found.get(name)
        return None if isinstance(found, (BadInput, str)) else found

    def findings(self) -> Iterator[tuple[str, Finding]]:
        """Each finding with the name of its data set. A data set whose fault is known otherwise (`check_source`) has one too."""
        from tuneyard.data.probe_findings import Finding, findings

        for name, found in self.found.items():
            if isinstance(found, BadInput):
                yield name, Finding("", found.cause, found.next_step, fatal=True)
            elif not isinstance(found, str):
                data = self.data[name]
                yield from ((name, each) for each in findings(data, found))

    def heads(self) -> Iterator[str]:
        """How much was looked at of data sets in stores."""
        for name, found in self.found.items():
            if not isinstance(found, (BadInput, str)) and found.read_bytes is not None:
                yield f"{found.extent} of {redact(self.data[name].source or '')}"

    def unknown(self) -> Iterator[str]:
        """Why data sets were not looked at."""
        for found in self.found.values():
            if isinstance(found, str):
                yield found


def probe_job(job: JobSpec, base_dir: Path, *, wanted: Collection[str] | None = None) -> dict[str, Probed]:
    """Probes by task, of the train tasks whose tokenizer is on this machine. `wanted`: names of tasks; None: all.

    Of a mixture each part is looked at, and of `data.validation` the set too. Products of earlier tasks do not exist yet.
    """
    from tuneyard.data.probing import probe_all

    asked: list[tuple[str, str, TrainData, Wanted | str]] = []
    for task in job.spec.tasks:
        if task.train is not None and (wanted is None or task.name in wanted):
            asked += [(task.name, *each) for each in _wanted(job, task, base_dir)]
    answers = iter(probe_all([each for *_, each in asked if not isinstance(each, str)]))
    found = [each if isinstance(each, str) else next(answers) for *_, each in asked]
    probed: dict[str, Probed] = {}
    for name in dict.fromkeys(task for task, *_ in asked):
        own = [(data_set, data, answer) for (task, data_set, data, _), answer in zip(asked, found, strict=True) if task == name]
        probed[name] = Probed(name, {key: data for key, data, _ in own}, {key: answer for key, _, answer in own})
    return probed


def _wanted(job: JobSpec, task: Task, base_dir: Path) -> Iterator[tuple[str, TrainData, Wanted | str]]:
    """Each data set with its name and the look at it, or the reason why there is none."""
    from tuneyard.data.mix_parts import data_sets
    from tuneyard.data.probing import Wanted

    train = task.train
    assert train is not None
    if train.program is not None or train.model.trust_remote_code:  # code of the model runs in ranks alone
        return
    folder = _tokenizer_of(job, task, base_dir)
    for name, data in data_sets(train.data).items():
        if data.source is None:
            continue
        if data.source.startswith("hf://"):
            yield name, data, f"{data.source} is downloaded when the task starts"
            continue
        try:
            resolved = train_data_of(data, base_dir, {})
        except TuneyardError:  # told by the checks of files
            continue
        own = data.model_copy(update={key: getattr(resolved, key) for key in ("source", "chat_template")})
        if folder is not None:
            yield name, own, Wanted(own, train.objective, folder)
        elif not is_local(resolved.source or ""):
            yield name, own, "the tokenizer is not on this machine"


def _tokenizer_of(job: JobSpec, task: Task, base_dir: Path) -> Path | None:
    """The folder of the tokenizer with which a task trains: of the first task of a chain."""
    body = task.train
    while body is not None and body.model.from_task is not None:
        if body.model.path is not None:
            return None
        body = job.spec.task(body.model.from_task).train
    if body is None or body.model.name is None:
        return None
    file = tokenizer_file(body.model.name, TOKENIZER, revision=body.model.revision, base_dir=base_dir)
    return file.parent if file is not None else None
