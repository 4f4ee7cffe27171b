"""`tuneyard.run(spec)`: what `tuneyard run` does, for programs and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from tuneyard.api import JobSpec, load_jobspec
from tuneyard.cli.progress.views import Silent, open_progress, watched
from tuneyard.cli.template_files import templates_in, templates_of_environment
from tuneyard.runtime import default_output, run_job, stop_on_interrupt
from tuneyard.tracking import Report


def run(
    spec: JobSpec | Path | str,
    *,
    out: str | None = None,
    resume: bool = False,
    model: str | None = None,
    templates: Sequence[Path | str] = (),
    progress: bool | None = None,
) -> Report:
    """Run a job on this machine: a JobSpec, or the path of its file. Returns its report; status is succeeded or stopped.

    Relative paths start at the file's folder, or, for a JobSpec object, at the working folder. `out`: folder or URI of all output;
    default: the job's `storage.output`, or runs/NAME-N. `resume`: continue in `out`. `model`: start from this model instead of the job's.
    `templates`: files and folders with ModelTemplates, in addition to TUNEYARD_TEMPLATES.
    `progress`: show it, in a notebook as one cell that is kept up to date, else on stderr; default: in notebooks and on terminals.
    The first Ctrl-C asks for a clean stop. Raises TuneyardError where the job cannot start, or fails.
    """
    job = (
        spec if isinstance(spec, JobSpec) else load_jobspec(Path(spec), templates_in([*map(Path, templates), *templates_of_environment()]))
    )
    base_dir = Path.cwd() if isinstance(spec, JobSpec) else Path(spec).absolute().parent
    shown = watched() if progress is None else progress
    with open_progress(job) if shown else nullcontext(Silent()) as listener, stop_on_interrupt(listener.stopping) as should_stop:
        return run_job(
            job,
            base_dir=base_dir,
            out=out or default_output(job, resume=resume),
            resume=resume,
            model=model,
            listener=listener,
            should_stop=should_stop,
        )
