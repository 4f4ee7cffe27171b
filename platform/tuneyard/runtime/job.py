"""Runs a job on this machine, or on a Ray cluster that it joins: checks first, then the tasks, and in every case the report."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path

from tuneyard.api import BadInput, JobSpec
from tuneyard.runtime.checks import check_installed, check_job, check_trackers
from tuneyard.runtime.conductor import Conductor, Listener, Watch
from tuneyard.runtime.environment import environment, resolve_environment, secret_values
from tuneyard.runtime.here import Here
from tuneyard.runtime.interrupt import ShouldStop, never
from tuneyard.runtime.job_report import WholeReport
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.overlaps import overlaps_of
from tuneyard.runtime.probes import probe_job
from tuneyard.runtime.references import with_model
from tuneyard.runtime.sessions.start import RayStart
from tuneyard.tracking import Report
from tuneyard.warm import temporary_folder


def _look_at_rows(job: JobSpec, base_dir: Path, wanted: Collection[str]) -> dict[str, list[str]]:
    """Look at the data of tasks before anything starts: some rows of train tasks, rendered and tokenised, and prompts that are trained on
    and scored. Returns warnings by task. Raises BadInput where training would refuse the rows.
    """
    warned: dict[str, list[str]] = {}
    for name, probed in probe_job(job, base_dir, wanted=wanted).items():
        for data_set, finding in probed.findings():
            where = f"{data_set}: " if data_set else ""
            if finding.fatal:
                raise BadInput(f"task {name}: {where}{finding.cause}", finding.next_step)
            warned.setdefault(name, []).append(f"{where}{finding}")
    for name, words in overlaps_of(job, base_dir):
        warned.setdefault(name, []).append(words)
    return warned


def run_job(
    job: JobSpec,
    *,
    base_dir: Path,
    out: str,
    resume: bool = False,
    ray_address: str | None = None,
    listener: Listener = lambda _event: None,
    model: str | None = None,
    until: str | None = None,
    should_stop: ShouldStop = never,
    on_report: Callable[[str], None] = lambda _uri: None,
) -> Report:
    """Run a job to its end, or until `should_stop` is true. Returns its report (status succeeded or stopped).

    `base_dir`: folder that relative paths of the JobSpec start at. `out`: folder or URI of the output. `resume`: skip tasks that have
    succeeded there, and resume the others from their commits. `ray_address`: a running cluster to join. `model`: see `with_model`. `until`:
    the last task to run; before it, only the tasks that it needs run.

    Raises BadInput before anything starts if the job cannot work, and the error of a failed task. Once `out` is claimed, report.json and
    report.html are written there in every case, and `on_report` is called with the place.
    """
    check_installed(job, base_dir)
    if model is not None:
        job = with_model(job, model, Path.cwd())
    values = resolve_environment(job.spec.env, os.environ)
    secrets = secret_values(job.spec.env, values)
    output = JobOutput(out)
    wanted = job.spec.needed_for(until) if until else {task.name for task in job.spec.tasks}
    with ExitStack() as stack:
        stack.enter_context(environment(values))
        check_trackers(job, os.environ)
        ray = stack.enter_context(RayStart(job, ray_address, values=values, secrets=secrets))
        check_job(job, base_dir=base_dir, machine=ray.machine)
        warned = {} if resume else _look_at_rows(job, base_dir, wanted)  # a resumed run was told
        stack.enter_context(output.locked())
        if resume:
            output.check_settings(job, wanted)
        scratch = stack.enter_context(temporary_folder("tuneyard-job-"))
        return Conductor(
            job=job,
            wanted=wanted,
            machines=Here(job, ray, output=output, scratch=scratch, secrets=secrets),
            output=output,
            report=WholeReport(output),
            watch=Watch(should_stop, job.spec.deadline),
            listener=listener,
            secrets=secrets,
            base_dir=base_dir,
            scratch=scratch,
            records=output.local_folder or scratch,
            resume=resume,
            previous=output.report() if resume else None,
            on_report=on_report,
            warned=warned,
        ).run()
