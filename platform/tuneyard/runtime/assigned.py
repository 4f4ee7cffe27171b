"""Runs one task of a job on the Ray cluster that a hub has made for it, as `run_job` runs all tasks of a job on one machine.

Other tasks of the job may run at the same time, in clusters of their own, with the same output.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tuneyard.api import JobSpec
from tuneyard.runtime.attempt.assignment import Assignment, pod_environment
from tuneyard.runtime.attempt.log_shipper import LogShipper, secrets_here
from tuneyard.runtime.checks import check_trackers
from tuneyard.runtime.conductor import Conductor, Listener, Watch
from tuneyard.runtime.environment import environment
from tuneyard.runtime.interrupt import ShouldStop
from tuneyard.runtime.joint_report import JointReport
from tuneyard.runtime.output import JobOutput
from tuneyard.runtime.pods import Pods


def run_assigned(
    job: JobSpec,
    assignment: Assignment,
    *,
    base_dir: Path,
    out: str,
    listener: Listener,
    should_stop: ShouldStop,
    stop_grace_s: Callable[[], float],
    scratch: Path,
    logs: LogShipper,
) -> str:
    """Run the assigned task to its end (`succeeded`), or until `should_stop` is true (`stopped`). Returns the status.

    `setup` has run in every container before, and the job's variables are set. `stop_grace_s`: seconds that the task has to stop.
    `scratch`: a folder for this attempt, on each machine. `logs`: copies the logs of this machine. The task resumes from the commits of
    earlier attempts, and is skipped if it has succeeded. The hub keeps the deadline.

    Raises TuneyardError. Once the output is claimed, the report is written in every case.
    """
    output = JobOutput(out)
    with environment(pod_environment(job.spec.env, os.environ)):
        check_trackers(job, os.environ)
        secrets = secrets_here(job.spec.env)
        pods = Pods(
            job,
            assignment,
            base_dir=base_dir,
            output=output,
            scratch=scratch,
            logs=logs,
            secrets=secrets,
            stop_grace_s=stop_grace_s,
        )
        report = Conductor(
            job=job,
            wanted={assignment.task},
            machines=pods,
            output=output,
            report=JointReport(output, job, assignment.task, assignment.attempt),
            watch=Watch(should_stop),
            listener=listener,
            secrets=secrets,
            base_dir=base_dir,
            scratch=scratch,
            records=scratch,
            resume=True,
            traced=False,
        ).run()
    return report.status
