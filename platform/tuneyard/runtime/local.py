"""`tuneyard.run(spec)`: what `tuneyard run` does, for programs."""

from __future__ import annotations

from pathlib import Path

from tuneyard.api import JobSpec, load_jobspec
from tuneyard.runtime.interrupt import stop_on_interrupt
from tuneyard.runtime.job import run_job
from tuneyard.runtime.output import default_output
from tuneyard.tracking import Report


def run(spec: JobSpec | Path | str, *, out: str | None = None, resume: bool = False, model: str | None = None) -> Report:
    """Run a job on this machine: a JobSpec, or the path of its file. Returns its report; status is succeeded or stopped.

    Relative paths start at the file's folder, or, for a JobSpec object, at the working folder. `out`: see `default_output`.
    The first Ctrl-C asks for a clean stop. Raises TuneyardError where the job cannot start, or fails.
    """
    job = spec if isinstance(spec, JobSpec) else load_jobspec(Path(spec))
    base_dir = Path.cwd() if isinstance(spec, JobSpec) else Path(spec).absolute().parent
    with stop_on_interrupt(lambda: None) as should_stop:
        return run_job(
            job,
            base_dir=base_dir,
            out=out or default_output(job, resume=resume),
            resume=resume,
            model=model,
            should_stop=should_stop,
        )
