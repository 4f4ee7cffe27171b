"""Lengths of train tasks for `tuneyard plan`: the rows of their data are counted, where the data exist before the job runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tuneyard.api import Task, TrainTask, TuneyardError
from tuneyard.api.secrets import redact
from tuneyard.cli.plan.mixture import PlannedPart, planned_parts
from tuneyard.planning import Interval, Length, length_of, steps_of_epochs
from tuneyard.runtime.probes import Probed
from tuneyard.runtime.references import source_of
from tuneyard.runtime.tokenizer_files import TOKENIZER, tokenizer_file
from tuneyard.storage import is_local

if TYPE_CHECKING:
    from tuneyard.data.mixture import Mixture
    from tuneyard.data.probe import Probe

Streamed = Literal["no", "maybe", "yes"]
"""Whether rows are made while the task trains. maybe: it depends on an unknown size."""


@dataclass(frozen=True)
class Known:
    """The length of a task. `length` None: it is unknown, and `why` is the reason. Otherwise `how` is its source, for people."""

    length: Length | None
    how: str = ""
    why: str = ""
    streamed: Streamed = "no"
    kinds: tuple[tuple[str, str], ...] = ()
    """Format and files of each streamed data set, as far as they are known."""
    mixture: Mixture | None = None
    """The mixture, where the rows of its parts are known."""

    def over(self, train: TrainTask) -> Known:
        """The length in steps of the rows that `train` names."""
        length = self.length
        if length is None or length.rows is None or train.steps is not None:
            return self
        rows, epochs = length.rows, train.epochs or 1.0
        steps = Interval(*(steps_of_epochs(epochs, value, train.batch.rows) for value in (rows.likely, rows.low, rows.high)))
        return replace(self, length=replace(length, steps=steps))

    def parts(self, batch: int) -> tuple[PlannedPart, ...]:
        """The parts of a mixture over all steps of `batch` rows; empty for one data set, and where rows are unknown."""
        return planned_parts(self.mixture, self.length.steps.likely, batch) if self.mixture is not None and self.length is not None else ()


def known_length(task: Task, model: str | None, base_dir: Path, probed: Probed | None = None) -> Known:
    """The length of a train task. `model`: the name of the model that it starts from. Its tokenizer is used where it is on this machine.
    `probed`: what was found in some rows of its data.

    An open batch counts as one row per step: `Known.over` gives the steps once a plan has decided it.
    """
    assert task.train is not None
    train = task.train.with_rows(1) if task.train.batch.is_open else task.train
    found = probed or Probed(task.name, {}, {})
    return _of_mixture(train, model, base_dir, found) if train.data.mix else _of_data(train, model, base_dir, found.probe())


def _of_mixture(train: TrainTask, model: str | None, base_dir: Path, probed: Probed) -> Known:
    """The length of an epoch over all parts. It is known where the length of each part is known."""
    from tuneyard.data.mix_parts import part_data, part_names
    from tuneyard.data.mixture import Mixture, Part

    names = part_names(train.data.mix)
    parts = [
        _of_data(
            train.model_copy(update={"data": part_data(train.data, part), "steps": None, "epochs": 1.0}),
            model,
            base_dir,
            probed.probe(name),
        )
        for name, part in zip(names, train.data.mix, strict=True)
    ]
    unknown = [f"{name}: {part.why}" for name, part in zip(names, parts, strict=True) if part.length is None or part.length.rows is None]
    if unknown:
        return _without_data(train, "; ".join(unknown))
    known = [part.length for part in parts if part.length is not None]

    def mixture(bound: str) -> Mixture:
        rows = [max(1, round(getattr(length.rows, bound))) for length in known]
        given = [Part(name, count, each.weight, each.repeats) for name, count, each in zip(names, rows, train.data.mix, strict=True)]
        return Mixture(given, exhausted=train.data.when_exhausted, temperature=train.data.temperature)

    likely = mixture("likely")
    rows = Interval(likely.epoch_rows, mixture("low").epoch_rows, mixture("high").epoch_rows)
    lengths = sorted(value for length in known for value in length.sample_tokens)
    length = Length(steps=Interval.exactly(train.steps or 0), rows=rows, sample_tokens=tuple(lengths))
    how = "; ".join(f"{name}: {part.how}" for name, part in zip(names, parts, strict=True))
    streamed = max((part.streamed for part in parts), key=("no", "maybe", "yes").index)
    kinds = tuple(kind for part in parts for kind in part.kinds)
    return Known(length, how, streamed=streamed, kinds=kinds, mixture=likely).over(train)


def _of_data(train: TrainTask, model: str | None, base_dir: Path, probed: Probe | None) -> Known:
    if train.data.from_task is not None:
        return _without_data(train, f"task {train.data.from_task} makes its data")
    from tuneyard.data import count_data

    read = train.model_copy(update={"data": source_of(train.data, base_dir, {})})
    source = read.data.source or ""
    if source.startswith("hf://"):
        return _without_data(train, f"{source} would have to be downloaded first")
    if not is_local(source):
        if train.steps is not None:  # counting rows is not worth the wait
            return _without_data(train, f"{source} is not read for a task with steps")
        print(f"counting {redact(source)}", file=sys.stderr)
    try:
        count = count_data(read, tokenizer=tokenizer_of(model, train.model.revision, base_dir) if model else None, probed=probed)
    except TuneyardError as error:
        return _without_data(train, error.cause.splitlines()[0])
    if count.samples.exact:
        how = f"{count.samples.likely:,.0f} {'samples were' if count.samples.likely != 1 else 'sample was'} counted"
    else:
        how = f"about {count.samples.likely:,.0f} samples ({count.samples.low:,.0f} to {count.samples.high:,.0f}), by a part of the data"
    if count.assumed_tokens:
        how += f", taken to have {count.characters_per_token.likely:g} characters a token"
    kinds = ((count.format, count.files),) if count.streamed else ()
    return Known(length_of(train, count), how, streamed="yes" if count.streamed else "no", kinds=kinds)


def _without_data(train: TrainTask, why: str) -> Known:
    length = length_of(train, None)
    data = train.data
    prepared = data.limit is not None or data.streaming is False
    streamed: Streamed = "no" if prepared else "yes" if data.streaming else "maybe"
    return Known(length, "full rows are assumed" if length is not None else "", why, streamed=streamed)


def tokenizer_of(model: str, revision: str | None, base_dir: Path) -> Path | None:
    """tokenizer.json of a model, where it is on this machine already."""
    return tokenizer_file(model, TOKENIZER, revision=revision, base_dir=base_dir)
