"""What a look at some rows of a job's data has found, as lines for people with their place in the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tuneyard.api import JobSpec
from tuneyard.data.mix_parts import part_names
from tuneyard.data.way import VALIDATION

if TYPE_CHECKING:
    from tuneyard.data.probe_findings import Finding
    from tuneyard.runtime.probes import Probed

FieldPath = tuple[str | int, ...]


def probes_of(job: JobSpec, base_dir: Path) -> Mapping[str, Probed]:
    """Probes by task."""
    from tuneyard.runtime.probes import probe_job

    return probe_job(job, base_dir)


def findings_of(job: JobSpec, probes: Mapping[str, Probed], *, known: Collection[str] = ()) -> Iterator[tuple[FieldPath, Finding]]:
    """Each finding with the path of its field in the JobSpec. `known`: tasks whose data have a fault that was told already."""
    for index, task in enumerate(job.spec.tasks):
        if task.train is None or task.name not in probes or task.name in known:
            continue
        names = part_names(task.train.data.mix)
        for name, finding in probes[task.name].findings():
            inside: FieldPath = ()
            if name in names and finding.field in ("", "chat"):  # other fields are the mixture's
                inside = ("mix", names.index(name))
            elif name == VALIDATION and not finding.field:
                inside = ("validation",)
            yield ("spec", "tasks", index, "train", "data", *inside, *filter(None, [finding.field])), finding
